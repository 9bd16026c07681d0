# Triton with the model `moondream`, which is a producer: no torch, no weights, no GPU.
# TRITON is NVIDIA's image `tritonserver`, of release 26.03 or newer, under a name that this machine has.
ARG TRITON=tritonserver:26.07-py3

FROM ${TRITON}
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
# Empty folders stand for the demo's models: no demo runs in here.
# The packages go to the Python of the image, which is the one that Triton embeds.
RUN mkdir -p schemas/stoop_schemas producer/stoop worker/stoop_worker deploy/demo_model/model \
    deploy/demo_hearing/model deploy/demo_hearing/recordings deploy/demo_embedding/model \
    && python3 -m pip install --no-cache-dir --break-system-packages .
COPY schemas schemas
COPY producer producer
RUN python3 -m pip install --no-cache-dir --break-system-packages --no-deps --force-reinstall .
COPY deploy/triton/model_repository /models
RUN useradd --uid 10001 --no-create-home stoop
ENV PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOME=/tmp
USER stoop
ENTRYPOINT ["tritonserver"]
CMD ["--model-repository=/models", "--exit-timeout-secs=30"]
