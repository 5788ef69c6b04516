/**
 * The symbol of a handler's module that is called. Page: discovery/callable.
 */

import { resolve } from 'node:path'
import { LoadError } from './failure.mjs'
import { shown } from './load-failure.mjs'

/** @typedef {import('./event.mjs').FunctionStart} FunctionStart */
/** @typedef {{ holder: any, call: (...args: any[]) => unknown }} Callable - the function and the object it is a method of */

/** Stands for what a module exports without a name: its default export, or the `module.exports` of CommonJS. */
const DEFAULT_EXPORT = 'default'

/**
 * The names that a message shows: the default export is the short way of writing the others.
 * @param {string[]} names
 */
export function symbolsOf(names) {
  const symbols = names.filter(name => name !== DEFAULT_EXPORT)
  return symbols.length === 0 ? names : symbols
}

/**
 * Finds the callable in what a module exports: by its name, in the default export, or the default export itself.
 * @param {FunctionStart} fn
 * @param {any} exports
 * @param {string[]} names - in order of preference
 * @param {string} usage - example line for the error
 * @returns {Callable}
 * @throws {LoadError}
 */
export function findCallable(fn, exports, names, usage) {
  const fallback = exports?.default ?? exports?.['module.exports']
  for (const name of names) {
    if (name === DEFAULT_EXPORT) {
      // A default export has no name in an object, so it is called as a plain function, without `this`.
      for (const found of [fallback, fallback?.default, exports])
        if (typeof found === 'function') return { holder: undefined, call: found }
      continue
    }
    for (const holder of [exports, fallback, fallback?.default]) {
      const found = memberOf(holder, name)
      if (typeof found === 'function') return { holder, call: found }
    }
  }
  const file = resolve(fn.dir, fn.entry)
  const symbols = symbolsOf(names)
  const [wanted] = symbols
  const other = memberOf(exports, /** @type {string} */ (wanted)) ?? memberOf(fallback, /** @type {string} */ (wanted))
  const problem =
    other === undefined
      ? `has no function "${symbols.join('" or "')}" (${listExports(exports, fallback)})`
      : `has "${wanted}", but it is ${other === null ? 'null' : `a value of type ${typeof other}`}, not a function`
  throw new LoadError(`${shown(fn, file)} ${problem}`, {
    file,
    hint: `add ${usage}, or name another function in invoke.handler`,
  })
}

/** @param {any} holder @param {string} name */
function memberOf(holder, name) {
  if (holder === null || (typeof holder !== 'object' && typeof holder !== 'function')) return undefined
  const found = holder[name]
  // `toString` and its like are no exports.
  return found === /** @type {any} */ (Object.prototype)[name] ||
    found === /** @type {any} */ (Function.prototype)[name]
    ? undefined
    : found
}

/** @param {any} exports @param {any} fallback */
function listExports(exports, fallback) {
  const names = new Set(Object.keys(exports ?? {}))
  if (typeof fallback === 'object' && fallback !== null) for (const name of Object.keys(fallback)) names.add(name)
  for (const name of ['default', 'module.exports', '__esModule']) names.delete(name)
  return names.size === 0 ? 'it exports nothing' : `it exports ${[...names].sort().slice(0, 20).join(', ')}`
}
