/** Module hooks of tests: `import 'fngw/test'` is a file of this package. Page: bin/test. */

let url = ''

/** @param {string} given */
export function initialize(given) {
  url = given
}

/**
 * @param {string} specifier
 * @param {unknown} context
 * @param {(specifier: string, context: unknown) => unknown} next
 */
export function resolve(specifier, context, next) {
  return specifier === 'fngw/test' ? { url, shortCircuit: true } : next(specifier, context)
}
