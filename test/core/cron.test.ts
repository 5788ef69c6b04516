import t from 'tap'
import { type Cron, nextWallTime, parseCron } from '../../lib/core/cron.ts'

function cronOf(text: string): Cron {
  const cron = parseCron(text)
  if ('problem' in cron) throw new Error(`${text}: ${cron.problem}`)
  return cron
}

const at = (text: string): number => Date.parse(`${text}Z`)
const show = (time: number | null): string | null => (time === null ? null : new Date(time).toISOString().slice(0, 19))

t.test('[scheduler/schedule.3] fields, names, ranges, lists, steps, Sunday, and macros in any case', async t => {
  const same: [text: string, other: string][] = [
    ['@hourly', '0 * * * *'],
    ['@Daily', '0 0 * * *'],
    ['@MIDNIGHT', '0 0 * * *'],
    ['@weekly', '0 0 * * SUN'],
    ['@monthly', '0 0 1 * *'],
    ['@yearly', '0 0 1 JAN *'],
    ['@annually', '0 0 1 1 *'],
    ['  0   9 * *  mon-FRI ', '0 9 * * 1-5'],
    ['0 0 * * 7', '0 0 * * 0'],
    ['0 0 * * 0,7', '0 0 * * SUN'],
    ['0 0 * * FRI-SUN', '0 0 * * 5,6,0'],
    ['0 0 * * SAT-SUN', '0 0 * * 6-7'],
    ['0 0 * * SUN-TUE', '0 0 * * 0-2'],
    ['1-5,3,3 * * * *', '1,2,3,4,5 * * * *'],
    ['*,1 * * * *', '* * * * *'],
    ['*/20 * * * *', '0,20,40 * * * *'],
    ['10-20/5 * * * *', '10,15,20 * * * *'],
    ['5/25 * * * *', '5,30,55 * * * *'],
    ['0 0 ? jan-mar ?', '0 0 * 1-3 *'],
    ['0 0 0 * * *', '0 0 * * *'],
  ]
  for (const [text, other] of same) {
    const { text: _, hasDays: a, hasWeekdays: b, ...left } = cronOf(text)
    const { text: __, hasDays: c, hasWeekdays: d, ...right } = cronOf(other)
    t.same([left, a, b], [right, c, d], `${text} = ${other}`)
  }
  t.equal(cronOf(' @Daily ').text, '@daily')
  t.equal(cronOf('0  9 * * MON').text, '0 9 * * MON')
})

t.test('[scheduler/schedule.4] what is no cron text is refused with its reason', async t => {
  const wrong: [text: string, problem: RegExp][] = [
    ['', /1 fields/],
    ['* * * *', /4 fields/],
    ['* * * * * * *', /7 fields/],
    ['@reboot', /no macro @reboot/],
    ['@weekdays', /no macro/],
    ['@toString', /no macro/],
    ['L 0 * * *', /"L"/],
    ['0 0 L * *', /day of month "L" has "L"/],
    ['0 0 * * 1#2', /day of week "1#2"/],
    ['H * * * *', /"H"/],
    ['0 0 15W * *', /15W/],
    ['? * * * *', /minute is "\?"/],
    ['60 * * * *', /0-59/],
    ['* 24 * * *', /0-23/],
    ['* * 0 * *', /1-31/],
    ['* * * 13 *', /1-12/],
    ['* * * * 8', /0-7/],
    ['*/0 * * * *', /every 0/],
    ['22-2 * * * *', /min\(22\) > max\(2\)/],
    ['1,,2 * * * *', /has ""/],
    ['1- * * * *', /has "1-"/],
    ['-1 * * * *', /has "-1"/],
    ['1.5 * * * *', /has "1.5"/],
    ['MON * * * *', /MON/],
    ['* * * FOO *', /FOO/],
    ['0 0 30 2 *', /no such date ever comes/],
    ['0 0 30,31 FEB *', /no such date ever comes/],
    ['0 0 31 4,6 *', /no such date ever comes/],
    [`${'1,'.repeat(200)}1 * * * *`, /more than 200/],
  ]
  for (const [text, problem] of wrong) {
    const cron = parseCron(text)
    t.match('problem' in cron ? cron.problem : 'accepted', problem, text)
  }
})

t.test('[scheduler/schedule.5] leap days, month ends, and either of two days', async t => {
  const cases: [text: string, after: string, next: readonly string[]][] = [
    ['0 0 29 2 *', '2026-01-01T00:00', ['2028-02-29T00:00:00', '2032-02-29T00:00:00']],
    ['0 0 29 2 *', '2097-01-01T00:00', ['2104-02-29T00:00:00']],
    ['0 12 31 * *', '2026-01-31T12:00', ['2026-03-31T12:00:00', '2026-05-31T12:00:00']],
    ['0 0 13 * FRI', '2026-02-01T00:00', ['2026-02-06T00:00:00', '2026-02-13T00:00:00', '2026-02-20T00:00:00']],
    ['0 0 1 * *', '2026-12-01T00:00', ['2027-01-01T00:00:00']],
    ['59 59 23 31 12 *', '2026-12-31T23:59:58', ['2026-12-31T23:59:59', '2027-12-31T23:59:59']],
    ['*/10 * * * * *', '2026-01-01T00:00:05.5', ['2026-01-01T00:00:10', '2026-01-01T00:00:20']],
  ]
  for (const [text, after, next] of cases) {
    let time: number | null = at(after)
    for (const expected of next) {
      time = nextWallTime(cronOf(text), time!)
      t.equal(show(time), expected, text)
    }
  }
})

/** Whether a minute is meant, from the text alone and by another way than the module's. */
function toTest(text: string): (date: Date) => boolean {
  const fields = text.split(' ').map(field =>
    // A table: the same few numbers are asked for all the time.
    Array.from({ length: 60 }, (_, value) => field === '*' || field.split(',').some(item => matches(item, value))),
  )
  const [minute, hour, day, month, weekday] = fields as [boolean[], boolean[], boolean[], boolean[], boolean[]]
  const isEither = text.split(' ')[2] !== '*' && text.split(' ')[4] !== '*'
  return date => {
    if (!minute[date.getUTCMinutes()] || !hour[date.getUTCHours()] || !month[date.getUTCMonth() + 1]) return false
    const isDay = day[date.getUTCDate()]!
    const isWeekday = weekday[date.getUTCDay()]! || (date.getUTCDay() === 0 && weekday[7]!)
    return isEither ? isDay || isWeekday : isDay && isWeekday
  }
}

function matches(item: string, value: number): boolean {
  const [range, step] = item.split('/')
  const [low, high] = range!.split('-').map(Number)
  if (range === '*') return value % Number(step) === 0
  const top = high ?? (step === undefined ? low! : 99)
  return value >= low! && value <= top && (value - low!) % Number(step ?? 1) === 0
}

t.test('[scheduler/schedule.5] minute by minute over years', async t => {
  const texts = [
    '*/7 */5 * * *',
    '0 0 29 2 *',
    '30 23 31 * *',
    '15,45 6-18/4 1-7 * 1',
    '0 12 13 * 5',
    '5 4 * 2,6-9 7',
    '59 0 28-31 2,4 *',
    '10/20 3 15 1-12/3 2-4',
    '0 9 * * 1-5',
  ]
  const start = Date.UTC(2026, 9, 3)
  const end = Date.UTC(2028, 3, 3)
  for (const text of texts) {
    const cron = cronOf(text)
    const isMeant = toTest(text)
    let next = nextWallTime(cron, start - 1)
    let count = 0
    for (let minute = start; minute < end; minute += 60_000) {
      if (isMeant(new Date(minute)) !== (next === minute)) return t.fail(`${text} at ${show(minute)}`)
      if (next !== minute) continue
      count += 1
      next = nextWallTime(cron, minute)
    }
    t.ok(count > 0, `${text}: ${count} times`)
  }
})
