/**
 * What fengari keeps in fields that its interface does not show: the values on a stack, the bytes of a string, the kind of
 * a value. Its version is pinned for this, and these few functions, `table.mjs` and `vm.mjs` are all that know the fields.
 * Owner: page runtime/lua-runtime.
 */

/**
 * Puts a value on the stack without a copy. The interpreter writes into values on the stack, so no table may hold the same one.
 * @param {any} L
 * @param {any} value - a TValue
 * @returns {number} 1, what a function that returns it has to return
 */
export function push(L, value) {
  L.stack[L.top] = value
  L.top++
  return 1
}

/** @param {any} L @returns {any} the TValue on top of the stack */
export function topOf(L) {
  return L.stack[L.top - 1]
}

/** @param {any} L @param {number} n - from 1 @returns {any} the TValue that the running function was given */
export function argumentOf(L, n) {
  return L.stack[L.ci.funcOff + n]
}

/** Values below the top, of all functions that run. @param {any} L */
export function heightOf(L) {
  return L.top
}

/** @param {any} string - TString @returns {Uint8Array} its own bytes */
export function bytesOf(string) {
  return string.realstring
}

/** @param {any} value - a TValue */
export function isFunction(value) {
  return value.ttisfunction()
}

/** nil and false. @param {any} value - a TValue */
export function isFalse(value) {
  return value.l_isfalse()
}

/** Instructions between two calls of the count hook. @param {any} L */
export function hookCount(L) {
  return L.basehookcount
}

/** @param {any} target - a TValue that gets the type and value of the other @param {any} value - a TValue */
export function assign(target, value) {
  target.setfrom(value)
}
