# One image for every broker. The first stage builds the virtual environment and compiles the kernels; the second
# carries both without pip, headers, tests, S3 and Flight, so that a container is ready as soon as it starts.
#
# EXTRAS are extras of Covey; the packages of the shipped operators (shapely, google-re2) add 11 MB, those of security
# (cryptography, PyJWT) 16 MB, those of otel (OpenTelemetry) 11 MB. OPERATORS are more packages for pip, with operators of your own: docker build --build-arg OPERATORS="company-operators scikit-learn" -t covey .
FROM python:3.11-slim AS build
ARG EXTRAS=operators,otel,security
ARG OPERATORS=
ENV NUMBA_CACHE_DIR=/var/cache/covey
COPY . /source
RUN python3 -m venv /opt/covey \
    && /opt/covey/bin/pip install --no-cache-dir --no-compile "/source[$EXTRAS]" $OPERATORS \
    && cd /opt/covey/lib/python3*/site-packages \
    && rm -rf pip* setuptools* pyarrow/include pyarrow/tests pyarrow/src numpy/*/include \
    && find . -depth -type d -name tests -exec rm -rf {} + \
    && find pyarrow \( -name '*flight*' -o -name '*s3*' -o -name '*.pxd' -o -name '*.pyx' -o -name '*.pxi' \) \
        -exec rm -rf {} + \
    && { /opt/covey/bin/python -m compileall -q covey google grpc grpc_health grpc_reflection hpack numba llvmlite numpy \
        prometheus_client pyarrow typer rich yaml || true; }
RUN /opt/covey/bin/covey compile

FROM python:3.11-slim
# A volume that is mounted at one of these folders belongs to the user as well: certificates, and what is stored.
RUN useradd --system --uid 10001 --home-dir /nonexistent --shell /usr/sbin/nologin covey \
    && install -d -o covey -g nogroup -m 700 /authority /etc/covey/certs /var/lib/covey
COPY --from=build /opt/covey /opt/covey
# Writable, for processors other than the one that built the image.
COPY --from=build --chown=covey:covey /var/cache/covey /var/cache/covey
ENV PATH=/opt/covey/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    NUMBA_CACHE_DIR=/var/cache/covey \
    COVEY_CONFIG=/etc/covey/overlay.yaml
USER covey
EXPOSE 7001
HEALTHCHECK --interval=10s --timeout=10s --start-period=60s --retries=3 CMD ["covey", "health"]
STOPSIGNAL SIGTERM
CMD ["covey", "broker"]
