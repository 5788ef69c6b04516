// Loaded by spare workers, so that node's loaders are ready before the first handler comes.
exports.ready = true
