/** Lua tables, which take less memory and time than fengari's own. Owner: page runtime/lua-runtime. */

/** @typedef {{ key: any, value: any, p: Entry | undefined, n: Entry | undefined }} Entry */

/**
 * Stands in for fengari's Table, whose two Maps cost 700 bytes and most of the time of making one. The map is made when
 * the table is first used, and so are the fields of a table that has a `fill`: a handler pays for the parts of the
 * event it reads, and cannot tell the difference. Where fengari asks for the map of removed keys, it gets the table itself,
 * which answers as an empty map until the first key is removed.
 */
export class LuaTable {
  /**
   * @param {any} L
   * @param {((table: LuaTable) => void) | null} fill - adds the fields when one is asked for
   */
  constructor(L, fill = null) {
    this.id = L.l_G.id_counter++
    /** @type {Map<any, Entry> | null} */
    this.map = null
    /** @type {Map<any, Entry> | null} */
    this.dead = null
    /** @type {unknown} */
    this.dead_weak = undefined
    /** @type {Entry | undefined} */
    this.first = undefined
    /** @type {Entry | undefined} */
    this.last = undefined
    /** @type {LuaTable | null} */
    this.metatable = null
    this.flags = ~0
    this.fill = fill
  }

  get strong() {
    return this.map ?? this.open()
  }

  get f() {
    if (this.fill !== null) this.open()
    return this.first
  }

  set f(entry) {
    this.first = entry
  }

  get l() {
    return this.last
  }

  set l(entry) {
    this.last = entry
  }

  /** @returns {unknown} */
  get dead_strong() {
    return this.dead ?? this
  }

  /** @returns {Map<any, Entry>} */
  open() {
    this.map = new Map()
    const { fill } = this
    if (fill !== null) {
      this.fill = null
      fill(this)
    }
    return this.map
  }

  /**
   * Adds a field that is not there yet.
   * @param {any} hash - what fengari files the key under
   * @param {any} key
   * @param {any} value
   */
  add(hash, key, value) {
    const previous = this.last
    const entry = { key, value, p: previous, n: undefined }
    if (previous === undefined) this.first = entry
    else previous.n = entry
    this.strong.set(hash, entry)
    this.last = entry
  }

  /** @param {any} hash - what fengari files the key under @returns {Entry | undefined} */
  entry(hash) {
    return this.strong.get(hash)
  }

  /** The field that was added first; `nextOf` gives the others. @returns {Entry | undefined} */
  firstField() {
    return this.f
  }

  /** Fields there are. */
  get size() {
    return this.strong.size
  }

  // What fengari asks its map of removed keys: these answer as an empty one.
  clear() {}

  get() {
    return undefined
  }

  /** @param {any} hash @param {Entry} entry */
  set(hash, entry) {
    this.dead = new Map([[hash, entry]])
  }
}

/** The field that was added after it. @param {Entry} entry @returns {Entry | undefined} */
export function nextOf(entry) {
  return entry.n
}
