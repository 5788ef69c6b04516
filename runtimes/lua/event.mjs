/** A call as the event table of a Lua handler, made as far as the handler looks. Page: invocation/event. */

import { isUtf8 } from 'node:buffer'
import { LuaTable } from './table.mjs'
import { toBase64 } from './text.mjs'

/**
 * The function as told by `start` (page runtime/wire-protocol, statement 10).
 * @typedef {object} FunctionStart
 * @property {string} key
 * @property {string} name
 * @property {string | null} version
 * @property {string} root - functions root, full path
 * @property {string} dir - folder of the handler, full path
 * @property {string} entry - handler file, full path
 * @property {{ names: string[] }} callable - symbols to look for, first found wins
 * @property {string | null} adapter
 * @property {Record<string, string>} env
 * @property {number} [reader] - user whose rights hold for the files it reads
 * @property {boolean} [production] - true where nobody edits the files
 * @property {Record<string, unknown>} context - the part of `event.context` that is the same for every call
 */

/**
 * A body that is no text: what comes back as it was given need not be decoded.
 * @typedef {{ string: unknown, bytes: Uint8Array | null }} Given - the Lua string of its base64; null before there is one
 */

/** Fields of a call's header that the event takes over as they are. */
const SCALARS = ['id', 'ts', 'method', 'path', 'raw_path']
const TABLES = ['query', 'headers', 'client', 'session']

/**
 * @param {any} L
 * @param {import('./values.mjs').Values} values
 * @param {FunctionStart} fn
 */
export function createEvents(L, values, fn) {
  const version = fn.version ?? 'default'

  /** @param {LuaTable} table @param {Uint8Array} body @param {Given} given */
  const putBody = (table, body, given) => {
    if (isUtf8(body)) {
      values.put(table, 'body', values.ofBytes(body))
      values.put(table, 'is_base64', values.ofBoolean(false))
      return
    }
    values.put(table, 'is_base64', values.ofBoolean(true))
    const value = values.ofBytes(toBase64(body))
    given.string = value.value
    given.bytes = body
    values.put(table, 'body_base64', value)
  }

  /**
   * The handler's two arguments. The header is parsed when one of them is looked into.
   * @param {string} headerText - JSON text of the call
   * @param {Uint8Array | null} body
   * @returns {{ event: LuaTable, params: LuaTable, given: Given }}
   */
  const toArguments = (headerText, body) => {
    /** @type {any} */
    let parsed = null
    const header = () => {
      parsed ??= JSON.parse(headerText)
      return parsed
    }
    /** @type {Given} */
    const given = { string: null, bytes: null }
    const params = new LuaTable(L, table => values.fill(table, header().params ?? {}))
    const event = new LuaTable(L, table => {
      const call = header()
      for (const name of SCALARS) {
        const value = values.ofJson(call[name])
        if (value !== null) values.put(table, name, value)
      }
      values.put(table, 'params', values.ofTable(params))
      values.put(table, 'path_params', values.ofTable(params))
      for (const name of TABLES) {
        const record = call[name]
        if (record !== null && record !== undefined) values.put(table, name, values.ofTable(values.lazyRecord(record)))
      }
      if (body !== null && body.length > 0) putBody(table, body, given)
      else values.put(table, 'is_base64', values.ofBoolean(false))
      values.put(table, 'version', values.ofText(version))
      // Made anew for each call: what a handler changes, the next call does not see.
      values.put(table, 'env', values.ofTable(values.lazyRecord(fn.env)))
      const { id, user, trigger, trace, trace_state } = call
      const context = { request_id: id, ...fn.context, user, trigger, trace, trace_state }
      values.put(table, 'context', values.ofTable(values.lazyRecord(context)))
    })
    return { event, params, given }
  }

  return toArguments
}
