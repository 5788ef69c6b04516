import t from 'tap'
import { Garbage } from '../../runtimes/lua/garbage.mjs'

const MIB = 1024 * 1024

/** Collections that were asked for, and the look that is planned. */
function makeGarbage() {
  const asked: string[] = []
  const planned: (() => void)[] = []
  const waits: number[] = []
  const garbage = new Garbage(
    options => asked.push(options?.type ?? 'all'),
    (look, ms) => {
      planned.push(look)
      waits.push(ms)
    },
  )
  const serve = (bytes: number): void => {
    garbage.note(bytes)
    garbage.tidy()
  }
  return { asked, planned, waits, serve }
}

t.test(
  '[runtime/lua-runtime.36] the young are collected after 4 MiB, everything when no more came for a second',
  async t => {
    const { asked, planned, waits, serve } = makeGarbage()
    serve(4 * MIB - 1)
    t.same([asked, planned.length], [[], 0], 'short bodies cost nothing')
    serve(1)
    t.same(asked, ['minor'])
    t.same(waits, [1000])
    for (let i = 0; i < 4; i++) serve(2 * MIB)
    t.same(asked, ['minor', 'minor', 'minor'])
    t.equal(planned.length, 1, 'one look at a time')
    planned.shift()!()
    t.same([asked.length, planned.length], [3, 1], 'it was used meanwhile: looked at again')
    planned.shift()!()
    t.same(asked.slice(3), ['all', 'all'])
    t.equal(planned.length, 0)
    serve(4 * MIB)
    t.equal(planned.length, 1, 'and so on')
  },
)
