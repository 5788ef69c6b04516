import t from 'tap'
import {
  type Cron,
  nextCronTime,
  nextWallTime,
  parseCron,
  toZone,
  toZonedText,
  type Zone,
} from '../../lib/core/cron.ts'

const cronOf = (text: string): Cron => parseCron(text) as Cron

function listOf(text: string, name: string, from: string, count: number): string[] {
  const zone = toZone(name)
  const times: string[] = []
  for (let at = Date.parse(from); times.length < count; times.push(toZonedText(at, zone)))
    at = nextCronTime(cronOf(text), zone, at)!
  return times
}

t.test('[scheduler/schedule.7] clocks that go forward and back', async t => {
  const NEW_YORK = 'America/New_York'
  t.same(
    listOf('30 2 * * *', NEW_YORK, '2026-03-07T12:00:00Z', 2),
    ['2026-03-08T03:00:00-04:00', '2026-03-09T02:30:00-04:00'],
    'skipped: at the first moment after the gap',
  )
  t.same(
    listOf('*/20 2-3 * * *', NEW_YORK, '2026-03-08T06:00:00Z', 3),
    ['2026-03-08T03:00:00-04:00', '2026-03-08T03:20:00-04:00', '2026-03-08T03:40:00-04:00'],
    'all that is skipped is one run, which is also the one of 3:00',
  )
  t.same(
    listOf('30 1 * * *', NEW_YORK, '2026-10-31T12:00:00Z', 2),
    ['2026-11-01T01:30:00-04:00', '2026-11-02T01:30:00-05:00'],
    'twice on the clock: the first time only',
  )
  t.same(
    listOf('30 1 * * *', NEW_YORK, '2026-11-01T05:45:00Z', 1),
    ['2026-11-02T01:30:00-05:00'],
    'asked between the two',
  )
  t.same(
    listOf('30 * * * *', NEW_YORK, '2026-11-01T04:00:00Z', 4),
    [
      '2026-11-01T00:30:00-04:00',
      '2026-11-01T01:30:00-04:00',
      '2026-11-01T01:30:00-05:00',
      '2026-11-01T02:30:00-05:00',
    ],
    'every hour is every hour',
  )
  t.same(
    listOf('30 * * * *', NEW_YORK, '2026-03-08T06:00:00Z', 2),
    ['2026-03-08T01:30:00-05:00', '2026-03-08T03:30:00-04:00'],
    'and nothing for the hour that there is not',
  )
  t.same(
    listOf('0 0 30 12 *', 'Pacific/Apia', '2011-12-01T00:00:00Z', 1),
    ['2011-12-31T00:00:00+14:00'],
    'a day that was skipped',
  )
})

/**
 * Every due moment by trying each minute: a clock is walked through, and the rules of the page are applied to what it shows.
 */
function bruteForce(cron: Cron, zone: Zone, start: number, end: number): number[] {
  const isDue = (wall: number): boolean => nextWallTime(cron, wall - 1) === wall
  const everyHour = cron.hours.size === 24
  const found: number[] = []
  /** The latest time that the clock has shown. */
  let shown = start + zone.offsetAt(start) - 60_000
  for (let at = start; at < end; at += 60_000) {
    const wall = at + zone.offsetAt(at)
    if (everyHour) {
      if (isDue(wall)) found.push(at)
      continue
    }
    let isNow = false
    // All that the clock has not shown before, up to now: one minute as a rule, a whole gap after it went forward.
    for (let time = shown + 60_000; time <= wall; time += 60_000) isNow ||= isDue(time)
    if (isNow) found.push(at)
    shown = Math.max(shown, wall)
  }
  return found
}

const ZONES = [
  'America/New_York',
  'Europe/Berlin',
  'Australia/Lord_Howe',
  'Africa/Casablanca',
  'Asia/Kathmandu',
  'Antarctica/Troll',
  'UTC',
  '-0330',
  'local',
]
const TEXTS = [
  '*/13 * * * *',
  '30 1,2 * * *',
  '*/10 0-4 * * *',
  '15 */2 * * 0',
  '0 3 29 * *',
  '45 2 * 3,10,11 SUN',
  '0 0 1 * *',
  '59 * * * 7',
]

t.test(
  '[scheduler/schedule.7] minute by minute over the days on which clocks change, and the years between',
  async t => {
    for (const name of ZONES) {
      const zone = toZone(name)
      const changes: number[] = []
      for (let at = Date.UTC(2026, 0, 1); at < Date.UTC(2029, 0, 1); at += 3_600_000)
        if (zone.offsetAt(at) !== zone.offsetAt(at - 3_600_000)) changes.push(at)
      for (const text of TEXTS) {
        const cron = cronOf(text)
        // Around each change, and a stretch without one.
        for (const middle of [...changes, Date.UTC(2027, 6, 31)]) {
          const start = middle - 30 * 3_600_000
          const end = middle + 30 * 3_600_000
          const expected = bruteForce(cron, zone, start, end)
          const times: number[] = []
          for (let at = nextCronTime(cron, zone, start - 1); at !== null && at < end; at = nextCronTime(cron, zone, at))
            times.push(at)
          if (JSON.stringify(times) !== JSON.stringify(expected)) {
            t.same(
              times.map(at => toZonedText(at, zone)),
              expected.map(at => toZonedText(at, zone)),
              `${text} ${name}`,
            )
            return
          }
          // Asked at any moment, the answer is the next of them.
          for (let at = start; at < end - 3_600_000; at += 1_260_000) {
            const next = nextCronTime(cron, zone, at)!
            const wanted = expected.find(one => one > at)
            if (wanted !== undefined && next !== wanted)
              return t.fail(`${text} ${name} after ${toZonedText(at, zone)}: ${toZonedText(next, zone)}`)
          }
        }
      }
      t.pass(`${name}: ${changes.length} changes`)
    }
  },
)
