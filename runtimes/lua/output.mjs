/** `print` and `io`, which write to the captured output. Owner: page runtime/lua-runtime. */

import { push } from './stack.mjs'
import { LuaTable } from './table.mjs'
import { toBytes } from './text.mjs'

const EMPTY = toBytes('')
const TAB = toBytes('\t')
const NEW_LINE = toBytes('\n')

/** @param {import('./sandbox.mjs').Parts} parts @returns {(L: any) => number} */
export function createPrint({ vm, host }) {
  return L => {
    host.write('stdout', Buffer.concat([...joinArguments(vm, L, 1, TAB), NEW_LINE]))
    return 0
  }
}

/** The table `io`. @param {import('./sandbox.mjs').Parts} parts */
export function createIo(parts) {
  const { L, values } = parts
  const io = new LuaTable(L)
  const doNothing = values.ofFunction(state => push(state, values.ofBoolean(true)))
  for (const stream of /** @type {const} */ (['stdout', 'stderr'])) {
    const file = new LuaTable(L)
    values.put(file, 'write', values.ofFunction(createWrite(parts, stream, file, 2)))
    for (const name of ['flush', 'setvbuf', 'close']) values.put(file, name, values.copy(doNothing))
    values.put(io, stream, values.ofTable(file))
    if (stream === 'stdout') values.put(io, 'write', values.ofFunction(createWrite(parts, stream, file, 1)))
  }
  return io
}

/**
 * @param {import('./sandbox.mjs').Parts} parts
 * @param {'stdout' | 'stderr'} stream
 * @param {LuaTable} file - returned, so that calls can be chained
 * @param {number} first - argument that is written
 * @returns {(L: any) => number}
 */
function createWrite({ vm, values, host }, stream, file, first) {
  return L => {
    for (let i = first; i <= vm.lua.lua_gettop(L); i++) vm.lauxlib.luaL_checkstring(L, i)
    host.write(stream, Buffer.concat(joinArguments(vm, L, first, EMPTY)))
    return push(L, values.ofTable(file))
  }
}

/** Values from index `first` on as text. @param {any} vm @param {any} L @param {number} first @param {Uint8Array} separator */
function joinArguments({ lua, lauxlib }, L, first, separator) {
  const count = lua.lua_gettop(L)
  /** @type {Uint8Array[]} */
  const pieces = []
  for (let i = first; i <= count; i++) {
    if (i > first) pieces.push(separator)
    pieces.push(lauxlib.luaL_tolstring(L, i))
    lua.lua_settop(L, count)
  }
  return pieces
}
