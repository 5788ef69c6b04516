# Images of fngw, one target each. Page: spec/image.md. Test: npm run test:image.
#
#   minimal  node and lua             no npm, no tsx (node itself takes the types out of .ts)
#   python   minimal + python, pip
#   php      minimal + php
#   full     all of them on Debian    with tsx, npm, pip, composer, apt
#
# Each target has the packages of a fleet, bullmq and ioredis: they are optional peers of the package, so they become dependencies of its copy here
# and get the versions of package-lock.json.
#
# None of them has a compiler: packages that must be compiled, go and rust need an image made from `full`.
#
#   docker build --target minimal -t fngw .
#   podman build --format docker --target minimal -t fngw .     podman's own format has no HEALTHCHECK
#   docker run --read-only --tmpfs /tmp -p 8080:8080 -v ./functions:/functions fngw

ARG NODE_IMAGE=docker.io/library/node:22-bookworm-slim
ARG DEBIAN_IMAGE=docker.io/library/debian:bookworm-slim

# The package, as npm would pack it.
FROM ${NODE_IMAGE} AS build
WORKDIR /src
COPY package.json package-lock.json ./
RUN npm ci --ignore-scripts --no-audit --no-fund
COPY . .
RUN npm run build \
  && mkdir -p /full /small \
  && tar -xzf "$(npm pack --ignore-scripts --silent)" -C /full --strip-components=1 \
  && cp package-lock.json /full/ \
  && cd /full \
  && npm pkg set --json dependencies.bullmq="$(npm pkg get devDependencies.bullmq)" dependencies.ioredis="$(npm pkg get devDependencies.ioredis)" \
  && npm pkg delete devDependencies.bullmq devDependencies.ioredis \
  && find /full/dist \( -name '*.map' -o -name '*.d.ts' \) -delete \
  && cp -a /full/. /small/ \
  && npm install --prefix /full --omit=dev --ignore-scripts --no-audit --no-fund \
  && npm install --prefix /small --omit=dev --omit=optional --ignore-scripts --no-audit --no-fund \
  && find /full/node_modules /small/node_modules \( -name '*.map' -o -name '*.d.ts' -o -name '*.d.cts' -o -name '*.d.mts' \) -delete \
  && chmod a+x /full/dist/bin/fngw.js /small/dist/bin/fngw.js

FROM ${DEBIAN_IMAGE} AS debian
ENV DEBIAN_FRONTEND=noninteractive
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends tini libstdc++6 >/dev/null && rm -rf /var/lib/apt/lists/*
COPY --from=build /usr/local/bin/node /usr/local/bin/node
COPY build/image-root.sh /build/

# What minimal consists of beside the package: node; an init that reaps zombies; sh, setpriv, prlimit and timeout, which start workers within
# their limits; perl, without its library, which adopts what functions detach; `env`, by which `fngw` starts.
FROM debian AS base
RUN sh /build/image-root.sh /root-fs /usr/local/bin/node /usr/bin/env /usr/bin/setpriv /usr/bin/prlimit /usr/bin/timeout /usr/bin/perl dash tini base-files \
  && ln -s /app/dist/bin/fngw.js /root-fs/usr/local/bin/fngw \
  && mkdir -p /root-fs/functions /root-fs/proc /root-fs/sys /root-fs/dev \
  && install -d -m 1777 /root-fs/tmp \
  && printf 'root:x:0:0:root:/root:/usr/sbin/nologin\nfngw:x:10001:10001:fngw:/tmp:/usr/sbin/nologin\n' >/root-fs/etc/passwd \
  && printf 'root:x:0:\nfngw:x:10001:\n' >/root-fs/etc/group \
  && chown 10001:10001 /root-fs/functions

FROM debian AS python-files
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends python3 python3-pip ca-certificates tzdata >/dev/null && rm -rf /var/lib/apt/lists/*
# The compiled standard library makes workers start sooner; pip's own is not needed for that.
RUN cd /usr/lib/python3.* && rm -rf test idlelib lib2to3/tests turtledemo ensurepip tkinter pydoc_data config-3* \
  && find /usr/lib/python3/dist-packages -name __pycache__ -prune -exec rm -rf {} + \
  && library=$(pwd) && cd / \
  && sh /build/image-root.sh /python-fs /usr/bin/python3 "/usr/bin/$(readlink /usr/bin/python3)" "$library" /usr/lib/python3 \
    /etc/ssl/certs/ca-certificates.crt /usr/share/zoneinfo \
  && install -d /python-fs/usr/lib/ssl && ln -s /etc/ssl/certs/ca-certificates.crt /python-fs/usr/lib/ssl/cert.pem

FROM debian AS php-files
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends php-cli php-curl php-mbstring php-sqlite3 php-xml ca-certificates tzdata >/dev/null \
  && rm -rf /var/lib/apt/lists/*
RUN php=$(readlink -f /usr/bin/php) \
  && sh /build/image-root.sh /php-fs "$php" /etc/php /usr/lib/php /etc/ssl/certs/ca-certificates.crt /usr/share/zoneinfo \
  && install -d /php-fs/usr/lib/ssl && ln -s /etc/ssl/certs/ca-certificates.crt /php-fs/usr/lib/ssl/cert.pem \
  && ln -s "$(basename "$php")" /php-fs/usr/bin/php

FROM scratch AS minimal
COPY --from=base /root-fs/ /
COPY --from=base --chown=10001:10001 /root-fs/functions/ /functions/
COPY --from=build /small/ /app/
ENV PATH=/usr/local/bin:/usr/bin \
  HOME=/tmp \
  NODE_ENV=production \
  FN_FUNCTIONS_ROOT=/functions \
  FN_HOST=0.0.0.0 \
  FNGW_IMAGE=1 \
  FN_SHUTDOWN_TIMEOUT=8 \
  FN_WORKER_NICE=5
LABEL org.opencontainers.image.title="fngw" \
  org.opencontainers.image.description="Function gateway: a folder of handler files as an HTTP API." \
  org.opencontainers.image.licenses="MIT"
WORKDIR /functions
USER 10001:10001
EXPOSE 8080
STOPSIGNAL SIGTERM
# tini is process 1: it passes signals on and reaps what functions leave behind.
ENTRYPOINT ["/usr/bin/tini", "--", "fngw"]
CMD ["run"]
HEALTHCHECK --interval=10s --timeout=6s --start-period=30s --retries=3 CMD ["fngw", "health", "--ready"]

FROM minimal AS python
COPY --from=python-files /python-fs/ /

FROM minimal AS php
COPY --from=php-files /php-fs/ /

FROM debian AS full-files
RUN apt-get update -qq \
  && apt-get install -y -qq --no-install-recommends python3 python3-pip php-cli php-curl php-mbstring php-sqlite3 php-xml composer unzip ca-certificates tzdata >/dev/null \
  && apt-get clean && rm -rf /var/lib/apt/lists/* /usr/share/doc/* /usr/share/man/* /build /usr/local/bin/node \
  && groupadd --gid 10001 fngw && useradd --uid 10001 --gid 10001 --home-dir /tmp --no-create-home --shell /usr/sbin/nologin fngw \
  && find / -xdev -type f -perm /6000 -exec chmod a-s {} +

FROM minimal AS full
COPY --from=full-files / /
COPY --from=build /usr/local/lib/node_modules/npm/ /usr/local/lib/node_modules/npm/
COPY --from=build /full/ /app/
ENV PATH=/usr/local/bin:/usr/bin:/usr/local/lib/node_modules/npm/bin
