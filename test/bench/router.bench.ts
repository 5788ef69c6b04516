/**
 * Route lookup against find-my-way in one run (goal P5). Run: `node --import tsx test/bench/router.bench.ts`.
 *
 * Ours is the tree alone, because a request's path is brought into canonical form when it is checked; where that changes the path, it is part
 * of the lookup here. Each case runs in a process of its own, so that no case is measured with another's compiled code. All sides get the
 * same fresh path string per lookup, as an HTTP parser makes one; the cost of making it is measured and taken off.
 * Rounds of all sides alternate and the fastest round of each is compared: other work of the machine only adds.
 *
 * find-my-way is measured three ways: with our rule for slashes (doubled and trailing ones do not matter), as it comes,
 * and after `compile()`, which turns the routes into program text.
 */

import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import findMyWay from 'find-my-way'
import type { Claim, FunctionVersion } from '../../lib/core/catalog.ts'
import { normalizePath } from '../../lib/router/radix-tree.ts'
import { buildRouteTable } from '../../lib/router/route-table.ts'
import { patternOf } from '../helpers/claims.ts'
import { type BenchRow, printRows } from './rows.ts'

interface Case {
  name: string
  routes: readonly string[]
  requests: readonly string[]
}

interface Figures {
  /** Nanoseconds of making a path string, fastest round. The others include it until it is taken off. */
  making: number
  ours: number
  /** find-my-way with our rule for slashes. */
  alike: number
  /** As it comes. */
  plain: number
  compiled: number
}

const PATH_GOAL = 0.8
const SCALE_GOAL = 1.3
const SIDES = ['making', 'ours', 'alike', 'plain', 'compiled'] as const
const PROCESSES = 2
const ROUNDS = 15
const LOOKUPS = 100_000
const WARM_UP = 200_000

const LONG = '/static/static/static/static/static'

function apiRoutes(): string[] {
  const names = ['users', 'posts', 'comments', 'orders', 'products', 'invoices', 'teams', 'projects']
  return [
    ...names.flatMap(name => [`/api/v1/${name}`, `/api/v1/${name}/:id`, `/api/v1/${name}/:id/history`]),
    ...['/api/v1/users/:id/posts/:postId', '/health', '/metrics', '/static/*', '/'],
  ]
}

/** Groups of ten: five static, three with params, two wildcards. */
function manyRoutes(count: number): string[] {
  return Array.from({ length: count }, (_, index) => {
    const group = `/svc-${String(Math.floor(index / 10)).padStart(4, '0')}`
    const kinds = ['', '/items', '/items/list', '/status', '/config/current', '/items/:id', '/users/:user']
    kinds.push('/items/:id/parts/:part', '/files/*', '/raw/*')
    return group + kinds[index % 10]!
  })
}

/** Sixteen lookups spread over so many groups. */
function manyRequests(groups: number): string[] {
  const tails = [
    '',
    '/items',
    '/items/list',
    '/items/42',
    '/users/alice',
    '/items/42/parts/7',
    '/files/a/b.js',
    '/status',
  ]
  return Array.from({ length: 16 }, (_, index) => {
    const group = Math.floor((index * groups) / 16)
    return `/svc-${String(group).padStart(4, '0')}${tails[index % tails.length]}`
  })
}

const CASES: readonly Case[] = [
  { name: 'root', routes: ['/'], requests: ['/'] },
  { name: 'short static', routes: ['/static'], requests: ['/static'] },
  { name: 'long static', routes: [LONG], requests: [LONG] },
  {
    name: 'long static, common prefix',
    routes: [1, 2, 3, 4, 5].map(depth => '/static'.repeat(depth)),
    requests: [LONG],
  },
  { name: 'short param', routes: ['/:param'], requests: ['/param1'] },
  { name: 'long param', routes: ['/:param'], requests: ['/longParamParamParamParamParamParam'] },
  { name: 'encoded param %2B', routes: ['/:param'], requests: ['/param%2B'] },
  { name: 'encoded param %20', routes: ['/:param'], requests: ['/param%20'] },
  { name: 'two params', routes: ['/:param1/:param2'], requests: ['/param1/param2'] },
  {
    name: 'long static with params',
    routes: ['/static/:param1/static/:param2/static'],
    requests: ['/static/param1/static/param2/static'],
  },
  { name: 'short wildcard', routes: ['/*'], requests: ['/static'] },
  { name: 'long wildcard', routes: ['/*'], requests: [LONG] },
  { name: 'api: static', routes: apiRoutes(), requests: ['/api/v1/invoices'] },
  { name: 'api: param', routes: apiRoutes(), requests: ['/api/v1/users/42'] },
  { name: 'api: param, uuid', routes: apiRoutes(), requests: ['/api/v1/users/9b2e4c1a-5f3d-4e8b-9a7c-1d2e3f4a5b6c'] },
  { name: 'api: two params', routes: apiRoutes(), requests: ['/api/v1/users/42/posts/1001'] },
  { name: 'api: wildcard', routes: apiRoutes(), requests: ['/static/js/vendor/some-library/dist/library.min.js'] },
  { name: 'api: not found', routes: apiRoutes(), requests: ['/api/v2/nothing/here'] },
  {
    name: 'api: mixed',
    routes: apiRoutes(),
    requests: [
      ...['/api/v1/users/42', '/api/v1/invoices', '/api/v1/orders', '/api/v1/users/42/posts/1001'],
      ...['/health', '/api/v1/teams/9', '/api/v1/products/3/history', '/static/css/a.css'],
    ],
  },
  { name: '10 routes', routes: manyRoutes(10), requests: manyRequests(1) },
  { name: '10,000 routes, same requests', routes: manyRoutes(10_000), requests: manyRequests(1) },
  { name: '10,000 routes, spread requests', routes: manyRoutes(10_000), requests: manyRequests(1000) },
]

/** Measures all cases, and the growth from 10 to 10,000 routes. */
export async function run(): Promise<BenchRow[]> {
  const rows: BenchRow[] = []
  const figures = new Map<string, Figures>()
  for (const [index, one] of CASES.entries()) {
    const found = await measureApart(index)
    figures.set(one.name, found)
    const ratio = found.ours / found.alike
    rows.push({ name: one.name, value: ratio, unit: 'ratio', goal: `<= ${PATH_GOAL}`, ok: ratio <= PATH_GOAL })
    rows.push({ name: `${one.name}: to find-my-way as it comes`, value: found.ours / found.plain, unit: 'ratio' })
    rows.push({ name: `${one.name}: to compile()`, value: found.ours / found.compiled, unit: 'ratio' })
    rows.push({ name: `${one.name}: ours`, value: found.ours, unit: 'ns' })
  }
  const base = figures.get('10 routes')!.ours
  const growth = figures.get('10,000 routes, same requests')!.ours / base
  rows.push({ name: '10,000 to 10', value: growth, unit: 'ratio', goal: `<= ${SCALE_GOAL}`, ok: growth <= SCALE_GOAL })
  // Spread requests also pay for the caches of the processor, with any structure.
  const spread = figures.get('10,000 routes, spread requests')!.ours / base
  rows.push({ name: '10,000 to 10, spread requests', value: spread, unit: 'ratio' })
  return rows
}

/** The best of several processes, which also differ in where their memory lies. */
async function measureApart(index: number): Promise<Figures> {
  const args = ['--import', 'tsx', import.meta.filename, `--case=${index}`]
  const best: Figures = { making: Infinity, ours: Infinity, alike: Infinity, plain: Infinity, compiled: Infinity }
  for (let run = 0; run < PROCESSES; run++) {
    const { stdout } = await promisify(execFile)(process.execPath, args)
    const found: Figures = JSON.parse(stdout)
    for (const side of SIDES) best[side] = Math.min(best[side], found[side])
  }
  for (const side of SIDES.slice(1)) best[side] -= best.making
  return best
}

function measure({ routes, requests }: Case): Figures {
  const table = buildRouteTable(routes.map(toClaim), { functions: [], forceUrl: false })
  const plain = findMyWay()
  const compiled = findMyWay()
  const alike = findMyWay({ ignoreTrailingSlash: true, ignoreDuplicateSlashes: true })
  for (const route of routes) {
    plain.on('GET', route, () => {})
    compiled.on('GET', route, () => {})
    alike.on('GET', route, () => {})
  }
  Reflect.get(compiled, 'compile').call(compiled)
  // A fresh flat string per lookup: a cached one would let the engine remember its hash and its matches.
  const codes = requests.map(path => Array.from(path, char => char.charCodeAt(0)))
  const fresh = (at: number): string => String.fromCharCode.apply(null, codes[at % codes.length]!)
  const isCanonical = requests.every(path => normalizePath(path) === path)
  const toPath = (path: string): string => (isCanonical ? path : (normalizePath(path) as string))
  // Results are kept, so that the compiler cannot leave out what nobody reads.
  const kept: unknown[] = new Array(64).fill(null)
  const sides: ((at: number) => void)[] = [
    at => {
      kept[at & 63] = fresh(at)
    },
    at => {
      kept[at & 63] = table.find('GET', toPath(fresh(at)), 'localhost:8080')
    },
    at => {
      kept[at & 63] = plain.find('GET', fresh(at))
    },
    at => {
      kept[at & 63] = compiled.find('GET', fresh(at))
    },
    at => {
      kept[at & 63] = alike.find('GET', fresh(at))
    },
  ]
  for (const side of sides) for (let at = 0; at < WARM_UP; at++) side(at)
  const times = sides.map((): number[] => [])
  for (let round = 0; round < ROUNDS; round++) {
    for (const [index, side] of sides.entries()) {
      const start = process.hrtime.bigint()
      for (let at = 0; at < LOOKUPS; at++) side(at)
      times[index]!.push(Number(process.hrtime.bigint() - start) / LOOKUPS)
    }
  }
  const [making = 0, ours = 0, plainTime = 0, compiledTime = 0, alikeTime = 0] = times.map(list => Math.min(...list))
  return { making, ours, plain: plainTime, compiled: compiledTime, alike: alikeTime }
}

function toClaim(text: string): Claim {
  const fn = { key: `node${text}@default`, name: text, version: null, fnDir: '/', entryFile: text }
  return {
    pattern: patternOf(text),
    methods: ['GET'],
    hosts: [],
    fn: fn as FunctionVersion,
    source: 'file',
    forced: false,
    origin: text,
    implied: false,
  }
}

if (process.argv[1] === import.meta.filename) {
  const one = process.argv[2]?.match(/^--case=(\d+)$/)?.[1]
  if (one === undefined) printRows('route lookup', await run())
  else process.stdout.write(JSON.stringify(measure(CASES[Number(one)]!)))
}
