/**
 * Header and body of a `call` frame -> the handler's event. Page: invocation/event.
 */

import { isUtf8 } from 'node:buffer'

/** @typedef {import('./call.mjs').Call} Call */

/**
 * The function as told by the `start` frame.
 * @typedef {object} FunctionStart
 * @property {string} key
 * @property {string} runtime
 * @property {string} name
 * @property {string | null} version
 * @property {string} root - functions root, full path
 * @property {string} dir - folder of the handler, full path
 * @property {string} entry - handler file, full path or relative to `dir`
 * @property {{ names: string[] }} callable - symbols to look for, first found wins
 * @property {string | null} adapter - canonical name; null is `native`, any other text is unsupported
 * @property {Record<string, string>} env
 * @property {string[]} packs - folders of shared packs
 * @property {boolean} production
 * @property {Record<string, any>} context - the parts of `event.context` that are the same for every call
 */

/** What a handler gets. A class only for `signal`: everything else is plain data, in the order of the page. */
export class FnEvent {
  #call
  /**
   * @param {FunctionStart} fn
   * @param {any} header
   * @param {Buffer} body
   * @param {Call} call
   */
  constructor(fn, header, body, call) {
    this.#call = call
    this.id = header.id
    this.ts = header.ts
    this.method = header.method
    this.path = header.path
    this.raw_path = header.raw_path
    this.params = header.params ?? {}
    this.path_params = this.params
    this.query = header.query ?? {}
    this.headers = header.headers ?? {}
    this.body = null
    this.is_base64 = false
    this.body_base64 = null
    if (body.length > 0) {
      if (isUtf8(body)) this.body = body.toString()
      else {
        this.is_base64 = true
        this.body_base64 = body.toString('base64')
      }
    }
    this.client = header.client ?? null
    this.session = header.session ?? null
    this.version = fn.version ?? 'default'
    // Copies: what a handler changes, the next call does not see.
    this.env = { ...fn.env }
    this.context = toContext(fn, header)
  }

  /** Aborts when the client is gone or the time is up; not part of the JSON event. */
  get signal() {
    return this.#call.signal
  }
}

/**
 * A context to copy, with every field in its place: the engine copies a whole object far faster than it adds fields to one.
 * @typedef {{ template: Record<string, any>, nested: string[] }} ContextShape
 * @type {WeakMap<FunctionStart, ContextShape>}
 */
const shapes = new WeakMap()

/** @param {FunctionStart} fn @returns {ContextShape} */
function toShape(fn) {
  const template = { request_id: '', ...fn.context, user: null, trigger: null, trace: null, trace_state: null }
  const nested = Object.keys(fn.context).filter(key => typeof fn.context[key] === 'object' && fn.context[key] !== null)
  const shape = { template, nested }
  shapes.set(fn, shape)
  return shape
}

/** @param {FunctionStart} fn @param {any} header @returns {Record<string, any>} */
function toContext(fn, header) {
  const { template, nested } = shapes.get(fn) ?? toShape(fn)
  const context = { ...template }
  context.request_id = header.id
  context.user = header.user ?? null
  context.trigger = header.trigger ?? null
  context.trace = header.trace ?? null
  context.trace_state = header.trace_state ?? null
  for (const key of nested) context[key] = { ...template[key] }
  return context
}
