/** The package for `require`: Node reads the modules themselves; this file is what resolvers of CommonJS expect to find. */
module.exports = require('../dist/lib/index.js')
