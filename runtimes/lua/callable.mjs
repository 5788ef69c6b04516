/** The symbol of a handler file that is called. Page: discovery/callable. */

import { bytesOf, isFunction, topOf } from './stack.mjs'
import { nextOf } from './table.mjs'
import { toText } from './text.mjs'

/** Looks for a callable in the globals of a state, and in what a handler file returned. */
export class Callables {
  #vm
  #L
  #values

  /** @param {import('./sandbox.mjs').State} state */
  constructor({ vm, L, values }) {
    this.#vm = vm
    this.#L = L
    this.#values = values
  }

  /**
   * One name alone was chosen by the function's config, and nothing replaces it.
   * @param {any} returned - what the file returned, a TValue
   * @param {readonly string[]} names - symbols to look for, first found wins
   * @returns {any} a TValue, undefined when there is none
   */
  find(returned, names) {
    const isChosen = names.length === 1
    if (!isChosen && isFunction(returned)) return returned
    for (const holder of [returned, this.#values.ofTable(this.#globals())]) {
      for (const name of names) {
        const found = this.#memberOf(holder, name)
        if (found !== undefined) return found
      }
    }
    return !isChosen && this.#isCallable(returned) ? returned : undefined
  }

  /** Names of all globals. @returns {Set<string>} */
  globalNames() {
    return new Set(this.#fieldsOf(this.#globals(), () => true))
  }

  /**
   * Functions that the handler file defined: global ones, and those of the table it returned.
   * @param {any} returned - a TValue
   * @param {ReadonlySet<string>} before - names of globals before it ran
   */
  namesOfFunctions(returned, before) {
    const globals = this.#fieldsOf(this.#globals(), isFunction).filter(name => !before.has(name))
    const own = returned.type === this.#vm.types.LUA_TTABLE ? this.#fieldsOf(returned.value, isFunction) : []
    return [...globals, ...own]
  }

  /** @param {import('./table.mjs').LuaTable} table @param {(value: any) => boolean} isWanted */
  #fieldsOf(table, isWanted) {
    const names = []
    for (let entry = table.firstField(); entry !== undefined; entry = nextOf(entry)) {
      const { key, value } = entry
      if (key.type === this.#vm.types.LUA_TLNGSTR && isWanted(value)) names.push(toText(bytesOf(key.value)))
    }
    return names
  }

  /** @returns {import('./table.mjs').LuaTable} */
  #globals() {
    const { lua } = this.#vm
    lua.lua_pushglobaltable(this.#L)
    const { value } = topOf(this.#L)
    lua.lua_settop(this.#L, -2)
    return value
  }

  /** @param {any} holder - a TValue @param {string} name @returns {any} a TValue that can be called, or undefined */
  #memberOf(holder, name) {
    const member = holder?.type === this.#vm.types.LUA_TTABLE ? this.#values.get(holder.value, name) : undefined
    return member !== undefined && this.#isCallable(member) ? member : undefined
  }

  /** @param {any} value */
  #isCallable(value) {
    if (isFunction(value)) return true
    if (value.type !== this.#vm.types.LUA_TTABLE) return false
    const { metatable } = value.value
    return metatable !== null && this.#values.get(metatable, '__call') !== undefined
  }
}
