/** The formats of texts that are checked; others are words for people, as the standard has it. Owner: page validation/request-schema. */

import { isIP } from 'node:net'

/** No expression here has a repetition in a repetition: each takes time that grows with the text alone. */
const DATE = /^(\d{4})-(\d\d)-(\d\d)$/
const TIME = /^([01]\d|2[0-3]):[0-5]\d:(?:[0-5]\d|60)(?:\.\d{1,9})?(?:[zZ]|[+-](?:[01]\d|2[0-3]):[0-5]\d)$/
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i
const SCHEME = /^[a-z][a-z0-9+.-]{0,100}:/i
const LABEL = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/i
const MAX_TEXT = 4096

export const FORMATS: Readonly<Record<string, (text: string) => boolean>> = {
  date: isDate,
  time: text => TIME.test(text),
  'date-time': isDateTime,
  email: isEmail,
  hostname: isHostname,
  ipv4: text => isIP(text) === 4,
  ipv6: text => isIP(text) === 6 && !text.includes('%'),
  uri: text => text.length <= MAX_TEXT && SCHEME.test(text) && !/[\s<>"{}|\\^`]/.test(text) && URL.canParse(text),
  uuid: text => UUID.test(text),
}

function isDate(text: string): boolean {
  const found = DATE.exec(text)
  if (found === null) return false
  const [year, month, day] = found.slice(1).map(Number) as [number, number, number]
  const date = new Date(0)
  date.setUTCFullYear(year, month - 1, day)
  return date.getUTCMonth() === month - 1 && date.getUTCDate() === day
}

function isDateTime(text: string): boolean {
  return (
    (text[10] === 'T' || text[10] === 't' || text[10] === ' ') && isDate(text.slice(0, 10)) && TIME.test(text.slice(11))
  )
}

/** One `@` between a plain name and a host: what mail servers take in practice. */
function isEmail(text: string): boolean {
  const at = text.lastIndexOf('@')
  if (at < 1 || at > 64) return false
  const name = text.slice(0, at)
  if (!/^[\w.!#$%&'*+/=?^`{|}~-]+$/.test(name) || /^\.|\.$|\.\./.test(name)) return false
  return isHostname(text.slice(at + 1))
}

function isHostname(text: string): boolean {
  return text.length <= 253 && text.split('.').every(label => LABEL.test(label))
}
