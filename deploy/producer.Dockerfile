# The command line, the client and the gateway: no torch, no model.
ARG PYTHON=3.12

FROM python:${PYTHON}-slim AS build
WORKDIR /src
RUN python -m venv /opt/stoop
COPY pyproject.toml README.md LICENSE ./
# Empty folders stand for the demo's models: no demo runs in here.
RUN mkdir -p schemas/stoop_schemas producer/stoop worker/stoop_worker deploy/demo_model/model \
    deploy/demo_hearing/model deploy/demo_hearing/recordings deploy/demo_embedding/model \
    && /opt/stoop/bin/pip install --no-cache-dir ".[grpc,otel]"
COPY schemas schemas
COPY producer producer
RUN /opt/stoop/bin/pip install --no-cache-dir --no-deps --force-reinstall .

FROM python:${PYTHON}-slim
RUN useradd --uid 10001 --no-create-home stoop
COPY --from=build /opt/stoop /opt/stoop
ENV PATH=/opt/stoop/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    HOME=/tmp
USER stoop
ENTRYPOINT ["stoop"]
CMD ["--help"]
