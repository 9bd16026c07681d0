# The worker. EXTRA=worker for the CPU, EXTRA=gpu for NVIDIA GPUs.
ARG PYTHON=3.12

FROM python:${PYTHON}-slim AS build
ARG EXTRA=worker
# Where pip finds a CPU build of torch, if it is to take one; empty for the usual CUDA build.
ARG PIP_EXTRA_INDEX_URL=
WORKDIR /src
RUN python -m venv /opt/stoop
# What we depend on changes less often than what we write: it is installed first, around empty packages.
COPY pyproject.toml README.md LICENSE ./
# Empty folders stand for the demo's models: no demo runs in here.
RUN mkdir -p schemas/stoop_schemas producer/stoop worker/stoop_worker deploy/demo_model/model \
    deploy/demo_hearing/model deploy/demo_hearing/recordings deploy/demo_embedding/model \
    && /opt/stoop/bin/pip install --no-cache-dir ".[${EXTRA},otel]"
COPY schemas schemas
COPY producer producer
COPY worker worker
RUN /opt/stoop/bin/pip install --no-cache-dir --no-deps --force-reinstall .

FROM python:${PYTHON}-slim
ARG EXTRA=worker
# Triton compiles the launchers of its kernels with the C compiler it finds.
RUN if [ "${EXTRA}" = gpu ]; then \
      apt-get update \
      && apt-get install --yes --no-install-recommends gcc libc6-dev \
      && rm -rf /var/lib/apt/lists/*; \
    fi
RUN useradd --uid 10001 --no-create-home stoop \
    && install --directory --owner stoop --group stoop /cache /run/stoop
COPY --from=build /opt/stoop /opt/stoop
# Models and compiled kernels outlive the container in /cache.
ENV PATH=/opt/stoop/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    HOME=/cache \
    HF_HOME=/cache/huggingface \
    TRITON_CACHE_DIR=/cache/triton
VOLUME /cache
USER stoop
ENTRYPOINT ["stoop"]
CMD ["worker"]
