import t from 'tap'
import { parseTimezone, toZone, toZonedText } from '../../lib/core/cron.ts'

const HOUR = 3_600_000

t.test('[scheduler/schedule.6] zones by name and offset', async t => {
  const names: [given: string, kept: string | null][] = [
    ['UTC', 'UTC'],
    ['utc', 'UTC'],
    ['z', 'Z'],
    ['Local', 'local'],
    ['+02:00', '+02:00'],
    ['-0530', '-0530'],
    ['+14:00', '+14:00'],
    ['Europe/Berlin', 'Europe/Berlin'],
    ['America/Argentina/Buenos_Aires', 'America/Argentina/Buenos_Aires'],
    ['+15:00', null],
    ['+02:60', null],
    ['+2', null],
    ['02:00', null],
    ['', null],
    ['Mars/Olympus', null],
    ['../etc', null],
    ['UTC+2', null],
  ]
  for (const [given, kept] of names) t.equal(parseTimezone(given), kept, given)
})

t.test('[scheduler/schedule.6] offsets at a moment', async t => {
  const winter = Date.UTC(2026, 0, 15)
  const summer = Date.UTC(2026, 6, 15)
  const cases: [name: string, winter: number, summer: number][] = [
    ['UTC', 0, 0],
    ['Z', 0, 0],
    ['+02:00', 2, 2],
    ['-0530', -5.5, -5.5],
    ['Europe/Berlin', 1, 2],
    ['America/New_York', -5, -4],
    ['Australia/Lord_Howe', 11, 10.5],
    ['Asia/Kathmandu', 5.75, 5.75],
  ]
  for (const [name, first, second] of cases) {
    const zone = toZone(name)
    t.same([zone.offsetAt(winter) / HOUR, zone.offsetAt(summer) / HOUR], [first, second], name)
    t.equal(zone.offsetAt(winter), first * HOUR, 'the second time too')
  }
  t.equal(toZone('local').offsetAt(winter), -new Date(winter).getTimezoneOffset() * 60_000)
  const berlin = toZone('Europe/Berlin')
  for (let quarter = 0; quarter < 2000; quarter++) berlin.offsetAt(winter + quarter * 900_000)
  t.equal(berlin.offsetAt(winter), HOUR, 'what it remembers is bounded and right')
})

t.test('[scheduler/schedule.6] a moment as people of the zone write it', async t => {
  const moment = Date.UTC(2026, 10, 23, 8, 0, 0)
  t.equal(toZonedText(moment, toZone('Europe/Berlin')), '2026-11-23T09:00:00+01:00')
  t.equal(toZonedText(moment, toZone('-0530')), '2026-11-23T02:30:00-05:30')
  t.equal(toZonedText(moment, toZone('Z')), '2026-11-23T08:00:00+00:00')
  t.equal(toZonedText(moment + 250, toZone('UTC')), '2026-11-23T08:00:00.250+00:00')
})
