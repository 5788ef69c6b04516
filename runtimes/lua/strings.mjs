/**
 * Functions of `string` that look at memory and clock, the methods of strings, and `getmetatable` for strings.
 * Owner: page runtime/lua-runtime.
 *
 *   ("x"):upper()  ─► methods: the functions of the library as they were at the start, out of everybody's reach
 *   ("x"):trim()   ─► not among them ─► `string`, where a function may have put its own
 */

import { push, topOf } from './stack.mjs'
import { LuaTable } from './table.mjs'
import { toBytes } from './text.mjs'

const PATTERN_FUNCTIONS = ['find', 'match', 'gmatch', 'gsub']
/** Steps of a match that take about a millisecond. */
const SLOW_STEPS = 100_000
const QUANTIFIERS = new Set(toBytes('*+-?'))
const EMPTY = toBytes('')
const FROZEN_STRINGS = 'the metatable of strings cannot be changed: all strings of all calls share it'

/**
 * Functions that replace those of the `string` library that fengari has put into the state.
 * @param {import('./sandbox.mjs').Parts} parts
 * @returns {Record<string, ((L: any) => number) | null>}
 */
export function createStringFunctions(parts) {
  const patterns = PATTERN_FUNCTIONS.map(name => [name, watchPattern(parts, name)])
  return { ...Object.fromEntries(patterns), rep: createRep(parts), dump: null }
}

/** `string.rep`, refused before it is built when it would not fit. @param {import('./sandbox.mjs').Parts} parts */
function createRep({ vm, values, guard, chunks }) {
  const { lauxlib } = vm
  return (/** @type {any} */ L) => {
    const text = lauxlib.luaL_checkstring(L, 1)
    const times = lauxlib.luaL_checkinteger(L, 2)
    const separator = lauxlib.luaL_optstring(L, 3, EMPTY)
    const unit = text.length + separator.length
    if (times <= 0 || unit === 0) return push(L, values.ofBytes(EMPTY))
    const size = unit * times - separator.length
    if (size > guard.maxStringBytes) return chunks.raise(L, `resulting string of ${size} bytes is too large`)
    const bytes = new Uint8Array(size)
    bytes.set(text)
    if (times > 1) bytes.set(separator, text.length)
    // Each step copies all that is there already: few steps for a long text.
    for (let done = unit; done < size; done *= 2) bytes.copyWithin(done, 0, Math.min(done, size - done))
    return push(L, values.ofBytes(bytes))
  }
}

/**
 * A pattern function of the library, which looks at no clock. A subject and pattern that may take long to match let
 * the answers that wait go first: the gateway then knows which call is the slow one.
 * @param {import('./sandbox.mjs').Parts} parts
 * @param {string} name
 */
function watchPattern({ vm: { lua }, L: state, guard }, name) {
  lua.lua_getglobal(state, toBytes('string'))
  lua.lua_getfield(state, -1, toBytes(name))
  const original = lua.lua_tocfunction(state, -1)
  lua.lua_settop(state, -3)
  return (/** @type {any} */ L) => {
    const subject = lua.lua_tostring(L, 1)
    const pattern = lua.lua_tostring(L, 2)
    if (subject !== null && pattern !== null && mayBeSlow(subject.length, pattern)) guard.beforeSlow()
    return original(L)
  }
}

/** A match backtracks through every way its quantifiers can share the subject. @param {number} length @param {Uint8Array} pattern */
function mayBeSlow(length, pattern) {
  let steps = length
  for (let i = 0; i < pattern.length && steps <= SLOW_STEPS; i++) {
    if (QUANTIFIERS.has(/** @type {number} */ (pattern[i]))) steps *= length
  }
  return steps > SLOW_STEPS
}

/**
 * Gives strings methods of their own: `string.upper = f` changes what the function's code finds in its library, as any
 * module variable would, and not what `("x"):upper()` does in every later call.
 * @param {import('./sandbox.mjs').Parts} parts
 */
export function separateMethods({ vm: { lua }, L, values }) {
  lua.lua_getglobal(L, toBytes('string'))
  const { value: library } = topOf(L)
  const methods = values.without(library, [])
  lua.lua_newtable(L)
  push(L, values.ofTable(library))
  lua.lua_setfield(L, -2, toBytes('__index'))
  methods.metatable = topOf(L).value
  lua.lua_pushstring(L, EMPTY)
  lua.lua_getmetatable(L, -1)
  push(L, values.ofTable(methods))
  lua.lua_setfield(L, -2, toBytes('__index'))
  lua.lua_settop(L, 0)
}

/**
 * `getmetatable`, which shows the metatable of strings but does not hand it out: a call that changed it would change
 * what strings do in every later call.
 * @param {import('./sandbox.mjs').Parts} parts
 */
export function createGetmetatable(parts) {
  const { lua } = parts.vm
  lua.lua_getglobal(parts.L, toBytes('getmetatable'))
  const original = lua.lua_tocfunction(parts.L, -1)
  lua.lua_settop(parts.L, -2)
  const viewMeta = createViewMeta(parts)
  return (/** @type {any} */ L) => {
    if (lua.lua_type(L, 1) !== lua.LUA_TSTRING) return original(L)
    // Each caller gets a view of its own, so that `rawset` on it changes nothing for anybody else.
    const view = new LuaTable(L)
    view.metatable = viewMeta
    return push(L, parts.values.ofTable(view))
  }
}

/** The metatable of such a view: reads from a copy, whose `__index` is the library itself, and refuses to be written. @param {import('./sandbox.mjs').Parts} parts */
function createViewMeta({ vm: { lua }, L: state, values, chunks }) {
  lua.lua_pushstring(state, EMPTY)
  lua.lua_getmetatable(state, -1)
  const { value: stringMeta } = topOf(state)
  lua.lua_newtable(state)
  push(state, values.ofTable(values.without(stringMeta, [])))
  lua.lua_setfield(state, -2, toBytes('__index'))
  lua.lua_pushcfunction(state, (/** @type {any} */ L) => chunks.raise(L, FROZEN_STRINGS))
  lua.lua_setfield(state, -2, toBytes('__newindex'))
  lua.lua_pushboolean(state, false)
  lua.lua_setfield(state, -2, toBytes('__metatable'))
  const { value: viewMeta } = topOf(state)
  lua.lua_settop(state, -4)
  return viewMeta
}
