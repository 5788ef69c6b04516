// An ES module that no package.json calls one, as many handlers are: node finds out by reading it.
export const ready = true
