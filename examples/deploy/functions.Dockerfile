# Functions and what a fleet needs, on an image of fngw. `fngw` is any target of the Dockerfile of the repository (docs/container.md).
#
#   docker build -f examples/deploy/functions.Dockerfile -t functions:1 FOLDER      FOLDER contains functions/
FROM docker.io/library/node:22-bookworm-slim AS store
RUN npm install --prefix /store --ignore-scripts --no-audit --no-fund bullmq@6 ioredis@5

FROM fngw
COPY --from=store /store/node_modules/ /app/node_modules/
COPY --chown=10001:10001 functions /functions
# Omit it for functions without packages.
RUN ["fngw", "deps", "install"]
