/**
 * `os.time`, `os.date`, `os.clock` and `os.difftime` of C Lua: UTC with `!`, and no end in 2038 although integers have
 * 32 bits here: a later time is a float. Owner: page runtime/lua-runtime.
 */

import { push } from './stack.mjs'
import { toBytes, toText } from './text.mjs'

/** @type {any[]} */
const DAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday']
/** @type {any[]} */
const MONTHS = [
  'January',
  'February',
  'March',
  'April',
  'May',
  'June',
  'July',
  'August',
  'September',
  'October',
  'November',
  'December',
]
const DAY_MS = 86_400_000
/** Seconds that a JavaScript Date can show. */
const MAX_TIME_SECONDS = 8.64e12

/** Date fields in local time or in UTC. */
class Fields {
  /** @param {number} seconds @param {boolean} utc */
  constructor(seconds, utc) {
    const date = new Date(seconds * 1000)
    this.seconds = seconds
    this.offsetMinutes = utc ? 0 : -date.getTimezoneOffset()
    // The same wall clock read as if it were UTC.
    const wall = new Date(date.getTime() + this.offsetMinutes * 60_000)
    this.year = wall.getUTCFullYear()
    this.month = wall.getUTCMonth()
    this.day = wall.getUTCDate()
    this.hour = wall.getUTCHours()
    this.minute = wall.getUTCMinutes()
    this.second = wall.getUTCSeconds()
    this.weekday = wall.getUTCDay()
    this.yearday = Math.floor((Date.UTC(this.year, this.month, this.day) - Date.UTC(this.year, 0, 1)) / DAY_MS)
    this.zone = utc ? 'GMT' : zoneName(date)
    const winter = Math.max(
      new Date(this.year, 0, 1).getTimezoneOffset(),
      new Date(this.year, 6, 1).getTimezoneOffset(),
    )
    this.isDst = !utc && date.getTimezoneOffset() !== winter
  }
}

/** @param {Date} date */
function zoneName(date) {
  const part = new Intl.DateTimeFormat('en-US', { timeZoneName: 'short' })
    .formatToParts(date)
    .find(({ type }) => type === 'timeZoneName')
  return part?.value ?? ''
}

/** @param {number} number @param {number} [width] @param {string} [fill] */
const pad = (number, width = 2, fill = '0') => String(number).padStart(width, fill)

/** Conversion letter to text. @type {Record<string, (f: Fields) => string>} */
const CONVERSIONS = {
  a: f => DAYS[f.weekday].slice(0, 3),
  A: f => DAYS[f.weekday],
  b: f => MONTHS[f.month].slice(0, 3),
  B: f => MONTHS[f.month],
  c: f => format('%a %b %e %H:%M:%S %Y', f),
  C: f => pad(Math.floor(f.year / 100)),
  d: f => pad(f.day),
  D: f => format('%m/%d/%y', f),
  e: f => pad(f.day, 2, ' '),
  F: f => format('%Y-%m-%d', f),
  h: f => MONTHS[f.month].slice(0, 3),
  H: f => pad(f.hour),
  I: f => pad(((f.hour + 11) % 12) + 1),
  j: f => pad(f.yearday + 1, 3),
  m: f => pad(f.month + 1),
  M: f => pad(f.minute),
  n: () => '\n',
  p: f => (f.hour < 12 ? 'AM' : 'PM'),
  r: f => format('%I:%M:%S %p', f),
  R: f => format('%H:%M', f),
  s: f => String(Math.floor(f.seconds)),
  S: f => pad(f.second),
  t: () => '\t',
  T: f => format('%H:%M:%S', f),
  u: f => String(f.weekday === 0 ? 7 : f.weekday),
  U: f => pad(Math.floor((f.yearday + 7 - f.weekday) / 7)),
  V: f => pad(isoWeek(f).week),
  G: f => String(isoWeek(f).year),
  g: f => pad(isoWeek(f).year % 100),
  w: f => String(f.weekday),
  W: f => pad(Math.floor((f.yearday + 7 - ((f.weekday + 6) % 7)) / 7)),
  x: f => format('%m/%d/%y', f),
  X: f => format('%H:%M:%S', f),
  y: f => pad(f.year % 100),
  Y: f => String(f.year),
  z: f => {
    const minutes = Math.abs(f.offsetMinutes)
    return `${f.offsetMinutes < 0 ? '-' : '+'}${pad(Math.floor(minutes / 60))}${pad(minutes % 60)}`
  },
  Z: f => f.zone,
  '%': () => '%',
}

/** The week that holds the day's Thursday. @param {Fields} f */
function isoWeek(f) {
  const thursday = new Date(Date.UTC(f.year, f.month, f.day + 3 - ((f.weekday + 6) % 7)))
  const year = thursday.getUTCFullYear()
  return { year, week: Math.floor((thursday.getTime() - Date.UTC(year, 0, 1)) / DAY_MS / 7) + 1 }
}

/** @param {string} template @param {Fields} fields @returns {string} */
function format(template, fields) {
  return template.replace(/%([\s\S]?)/g, (_, letter) => {
    const convert = Object.hasOwn(CONVERSIONS, letter) ? CONVERSIONS[letter] : undefined
    if (convert === undefined) throw new TypeError(`invalid conversion specifier '%${letter}'`)
    return convert(fields)
  })
}

/**
 * @param {any} vm - from `loadVm`
 * @param {import('./values.mjs').Values} values
 * @returns {Record<string, (L: any) => number>} functions of `os`
 */
export function createTimeFunctions(vm, values) {
  const { lua, lauxlib } = vm

  /** @param {any} L @param {number} number */
  const pushNumber = (L, number) => push(L, values.ofNumber(number))

  /** @param {any} L @param {number} index */
  const timeArgument = (L, index) => {
    const seconds = lauxlib.luaL_checknumber(L, index)
    lauxlib.luaL_argcheck(L, Math.abs(seconds) <= MAX_TIME_SECONDS, index, toBytes('time out of range'))
    return seconds
  }

  /** @param {any} L @param {string} name @param {number | null} fallback */
  const dateField = (L, name, fallback) => {
    const type = lua.lua_getfield(L, 1, toBytes(name))
    const number = lua.lua_tonumber(L, -1)
    lua.lua_settop(L, -2)
    if (type === lua.LUA_TNIL && fallback !== null) return fallback
    if (type === lua.LUA_TNIL) return lauxlib.luaL_error(L, toBytes(`field '${name}' missing in date table`))
    if (!Number.isInteger(number)) return lauxlib.luaL_error(L, toBytes(`field '${name}' is not an integer`))
    return number
  }

  /** @param {any} L @param {Fields} f */
  const setFields = (L, f) => {
    const fields = {
      year: f.year,
      month: f.month + 1,
      day: f.day,
      hour: f.hour,
      min: f.minute,
      sec: f.second,
      wday: f.weekday + 1,
      yday: f.yearday + 1,
    }
    for (const [name, number] of Object.entries(fields)) {
      lua.lua_pushinteger(L, number)
      lua.lua_setfield(L, -2, toBytes(name))
    }
    lua.lua_pushboolean(L, f.isDst)
    lua.lua_setfield(L, -2, toBytes('isdst'))
  }

  return {
    clock: L => {
      lua.lua_pushnumber(L, performance.now() / 1000)
      return 1
    },
    date: L => {
      let template = toText(lauxlib.luaL_optstring(L, 1, toBytes('%c')))
      const seconds = lua.lua_isnoneornil(L, 2) ? Math.floor(Date.now() / 1000) : timeArgument(L, 2)
      const utc = template.startsWith('!')
      if (utc) template = template.slice(1)
      const fields = new Fields(seconds, utc)
      if (template.startsWith('*t')) {
        lua.lua_createtable(L)
        setFields(L, fields)
        return 1
      }
      try {
        lua.lua_pushstring(L, toBytes(format(template, fields)))
      } catch (error) {
        if (!(error instanceof TypeError)) throw error
        return lauxlib.luaL_argerror(L, 1, toBytes(error.message))
      }
      return 1
    },
    difftime: L => {
      lua.lua_pushnumber(L, timeArgument(L, 1) - (lua.lua_isnoneornil(L, 2) ? 0 : timeArgument(L, 2)))
      return 1
    },
    time: L => {
      if (lua.lua_isnoneornil(L, 1)) return pushNumber(L, Math.floor(Date.now() / 1000))
      lauxlib.luaL_checktype(L, 1, lua.LUA_TTABLE)
      lua.lua_settop(L, 1)
      const date = new Date(
        dateField(L, 'year', null),
        dateField(L, 'month', null) - 1,
        dateField(L, 'day', null),
        dateField(L, 'hour', 12),
        dateField(L, 'min', 0),
        dateField(L, 'sec', 0),
      )
      const seconds = Math.floor(date.getTime() / 1000)
      if (Number.isNaN(seconds)) {
        return lauxlib.luaL_error(L, toBytes('time result cannot be represented in this installation'))
      }
      setFields(L, new Fields(seconds, false))
      return pushNumber(L, seconds)
    },
  }
}
