import t from 'tap'
import type { Claim } from '../../lib/core/catalog.ts'
import { buildRouteTable, describeClaim } from '../../lib/router/route-table.ts'
import { makeClaim } from '../helpers/claims.ts'

const codes = (claims: Claim[]): string[] =>
  buildRouteTable(claims, { functions: [], forceUrl: false }).warnings.map(({ code }) => code)

t.test(
  '[router/route-table.3, router/route-table.4, router/route-table.5, router/route-table.6] what is worth a warning',
  async t => {
    const file = makeClaim('GET /x', { fn: 'x', folder: 'site' })
    const rows: [string, Claim, string[]][] = [
      ['config under a file', makeClaim('/x', { fn: 'c', source: 'config' }), ['ROUTE_TAKEN']],
      [
        'implied config under a file elsewhere',
        makeClaim('/x', { fn: 'c', source: 'config', implied: true }),
        ['ROUTE_TAKEN'],
      ],
      [
        'function beside its own method file',
        makeClaim('/x', { fn: 'c', source: 'config', implied: true, folder: 'site' }),
        [],
      ],
      [
        'listed route beside a method file',
        makeClaim('/x', { fn: 'c', source: 'config', folder: 'site' }),
        ['ROUTE_TAKEN'],
      ],
      ['file under a manifest', makeClaim('/x', { fn: 'c', source: 'manifest' }), []],
      ['file under force', makeClaim('/x', { fn: 'c', source: 'config', forced: true }), []],
      ['another file', makeClaim('/x', { fn: 'c' }), ['ROUTE_CONFLICT']],
      ['another method', makeClaim('POST /x', { fn: 'c' }), []],
      ['version', makeClaim('/x', { fn: 'c', version: 'v2', source: 'config' }), ['ROUTE_TAKEN']],
    ]
    for (const [name, claim, expected] of rows) {
      t.same(codes([file, claim]), expected, name)
      t.same(codes([claim, file]), expected, `${name}, the other way round`)
    }
  },
)

t.test('[router/route-table.4] a claim is named by the file that makes it', async t => {
  t.equal(describeClaim(makeClaim('/x', { fn: 'x' })), 'the file route x/x.js')
  t.equal(describeClaim(makeClaim('/x', { fn: 'x', source: 'config' })), 'x/fn.config.json (function node/x@default)')
  t.equal(describeClaim(makeClaim('/x', { fn: 'x', source: 'manifest' })), 'fn.routes.json (function node/x@default)')
})
