# One image for every broker. The first stage builds the virtual environment; the second carries it without pip's
# caches or the sources, with the kernels compiled, so that a container is ready as soon as it starts.
FROM python:3.11-slim AS build
COPY . /source
RUN python3 -m venv /opt/covey \
    && /opt/covey/bin/pip install --no-cache-dir /source

FROM python:3.11-slim
COPY --from=build /opt/covey /opt/covey
ENV PATH=/opt/covey/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    NUMBA_CACHE_DIR=/var/cache/covey \
    COVEY_CONFIG=/etc/covey/overlay.yaml
# Numba wants its cache to be writable, even where everything in it is there already.
RUN useradd --system --uid 10001 --home-dir /nonexistent --shell /usr/sbin/nologin covey \
    && install -d -o covey -g covey /var/cache/covey
USER covey
RUN python3 -c 'from covey.matcher import compile_kernels; compile_kernels()'
EXPOSE 7001
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s --retries=3 CMD ["covey", "health"]
STOPSIGNAL SIGTERM
CMD ["covey", "broker"]
