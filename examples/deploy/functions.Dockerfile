# Functions on an image of fngw. `fngw` is any target of the Dockerfile of the repository (docs/container.md), which has the packages of a fleet.
#
#   docker build -f examples/deploy/functions.Dockerfile -t functions:1 FOLDER      FOLDER contains functions/
FROM fngw
COPY --chown=10001:10001 functions /functions
# Omit it for functions without packages.
RUN ["fngw", "deps", "install"]
