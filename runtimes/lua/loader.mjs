/** Handler file and symbol -> callable. Pages: discovery/callable, runtime/lua-runtime. */

import { resolve } from 'node:path'
import { Callables } from './callable.mjs'
import { toSourceFrame } from '../node/source-frame.mjs'
import { SourceError } from './files.mjs'
import { topOf } from './stack.mjs'
import { toBytes, toText } from './text.mjs'

/** The error of `require` for a module file with a syntax error: the last place is the one of the error. */
const BROKEN_MODULE = /error loading module '[^']*': (?<message>(?<file>[^\n:]+):(?<line>\d+): .*)$/s

/** Functions of a file that are named in a message. */
const MAX_NAMED = 20

/** A function that cannot be loaded, with what is wrong and how to mend it. */
export class LoadError extends Error {
  /** @param {import('./failure.mjs').Failure} failure */
  constructor(failure) {
    super(failure.message)
    this.failure = failure
  }
}

export class Loader {
  #state
  #failures
  #files
  #fn
  #callables

  /**
   * @param {import('./sandbox.mjs').State} state
   * @param {import('./failure.mjs').Failures} failures
   * @param {import('./files.mjs').SourceFiles} files
   * @param {import('./event.mjs').FunctionStart} fn
   */
  constructor(state, failures, files, fn) {
    this.#state = state
    this.#failures = failures
    this.#files = files
    this.#fn = fn
    this.#callables = new Callables(state)
  }

  /**
   * Runs the handler file.
   * @returns {any} the callable, a TValue
   * @throws {LoadError}
   */
  load() {
    const { adapter, callable } = this.#fn
    if (adapter !== null && adapter !== 'native') {
      throw this.#toError(`adapter "${adapter}" is not available in lua`, 'remove invoke.adapter')
    }
    this.#compile(this.#readEntry())
    const before = this.#callables.globalNames()
    const returned = this.#run()
    const found = this.#callables.find(returned, callable.names)
    if (found === undefined) throw this.#toMissing(returned, before)
    // A copy: the handler may assign another function to its name later.
    return this.#state.values.copy(found)
  }

  #readEntry() {
    try {
      const source = this.#files.read(this.#fn.entry)
      if (source !== null) return source
    } catch (error) {
      throw error instanceof SourceError ? this.#toError(error.message) : error
    }
    throw this.#toError(`handler file ${this.#files.nameOf(this.#fn.entry)} does not exist`)
  }

  /** @param {string} path - that an error names: a handler may have written it @returns {string | null} */
  #readText(path) {
    try {
      const source = this.#files.read(path)
      return source === null ? null : toText(source.text)
    } catch (error) {
      if (error instanceof SourceError) return null
      throw error
    }
  }

  /** Puts the file's function on the stack. @param {import('./files.mjs').Source} source */
  #compile(source) {
    const { vm, L } = this.#state
    if (this.#state.compileFile(L, source)) return
    const failure = this.#failures.describe('load', topOf(L))
    vm.lua.lua_settop(L, 0)
    throw this.#toSyntaxError(failure)
  }

  /** @param {import('./failure.mjs').Failure} failure */
  #toSyntaxError({ file = this.#fn.entry, ...failure }) {
    const { line } = failure
    const text = line === undefined ? null : this.#readText(file)
    const frame = text === null ? '' : `    at ${file}:${line}\n${toSourceFrame(text, Number(line))}`
    const stack = [frame, failure.stack].filter(Boolean).join('\n')
    const message = `syntax error in ${failure.message}`
    return new LoadError({ ...failure, file, message, ...(stack !== '' && { stack }) })
  }

  /** @returns {any} what the file returned, a TValue */
  #run() {
    const { vm, L } = this.#state
    const failure = this.#failures.run(0, 'load')
    if (failure !== null) {
      const broken = BROKEN_MODULE.exec(failure.message)
      if (broken !== null) {
        const { message, file, line } = /** @type {{ message: string, file: string, line: string }} */ (broken.groups)
        throw this.#toSyntaxError({ ...failure, message, file: resolve(this.#files.root, file), line: Number(line) })
      }
      throw new LoadError({ file: this.#fn.entry, ...failure, message: `cannot load ${failure.message}` })
    }
    const returned = topOf(L)
    vm.lua.lua_settop(L, 0)
    return returned
  }

  /** @param {any} returned @param {ReadonlySet<string>} before */
  #toMissing(returned, before) {
    const [wanted = ''] = this.#fn.callable.names
    const names = this.#callables.namesOfFunctions(returned, before)
    const listed = names.length === 0 ? 'it defines none' : `it defines ${names.sort().slice(0, MAX_NAMED).join(', ')}`
    return this.#toError(
      `${this.#files.nameOf(this.#fn.entry)} has no function "${wanted}" (${listed})`,
      this.#isLocal(wanted)
        ? `"${wanted}" is local: remove "local", or end the file with "return ${wanted}"`
        : `add function ${wanted}(event, params) ... end, or name another function in invoke.handler`,
    )
  }

  /** @param {string} name */
  #isLocal(name) {
    const text = toText(this.#files.read(this.#fn.entry)?.text ?? toBytes(''))
    return new RegExp(`^\\s*local\\s+(?:function\\s+)?${name}\\b`, 'm').test(text)
  }

  /** @param {string} message @param {string} [hint] */
  #toError(message, hint) {
    return new LoadError({ code: 'load', message, file: this.#fn.entry, ...(hint === undefined ? {} : { hint }) })
  }
}
