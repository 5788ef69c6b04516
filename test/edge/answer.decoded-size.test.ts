import t from 'tap'
import { brotliCompressSync, deflateRawSync, deflateSync, gzipSync } from 'node:zlib'
import { DecodedSize } from '../../lib/edge/answer.ts'

/** @param isFast - pieces come before the ones before them are counted */
function countAll(
  codings: string[],
  pieces: readonly Uint8Array[],
  maxBytes: number,
  isFast: boolean,
): Promise<string> {
  return new Promise(resolve => {
    let counted = 0
    const rest = [...pieces]
    const size = new DecodedSize(codings, maxBytes, problem =>
      resolve(problem ?? (counted === pieces.length ? 'fits' : `ended with ${counted} of ${pieces.length}`)),
    )
    const next = (): void => {
      const piece = rest.shift()
      if (piece === undefined) {
        size.end()
        return
      }
      size.add(Buffer.from(piece), () => {
        counted += 1
        if (!isFast) next()
      })
      if (isFast) next()
    }
    next()
  })
}

t.test('[edge/passthrough.20] decoded lengths of every coding, whole, cut, joined and followed by noise', async t => {
  const gzip = gzipSync('hello')
  const noise = Buffer.from('garbage')
  const bomb = gzipSync(Buffer.alloc(20_000_000))
  const bytes = [...gzip].map(byte => Buffer.from([byte]))
  const rows: [string, string[], readonly Uint8Array[], number, string][] = [
    ['gzip that fits exactly', ['gzip'], [gzip], 5, 'fits'],
    ['one byte too much', ['gzip'], [gzip], 4, 'too large'],
    ['byte by byte', ['x-gzip'], bytes, 5, 'fits'],
    ['two members in one piece', ['gzip'], [Buffer.concat([gzip, gzip])], 9, 'too large'],
    ['two members in two pieces', ['gzip'], [gzip, gzip], 10, 'fits'],
    ['noise behind', ['gzip'], [gzip, noise], 5, 'not decodable'],
    ['zeros behind', ['gzip'], [Buffer.concat([gzip, Buffer.alloc(9)])], 5, 'fits'],
    ['a bomb', ['gzip'], [bomb], 1000, 'too large'],
    ['a bomb in a bomb', ['gzip', 'gzip'], [gzipSync(bomb)], 100_000, 'too large'],
    ['cut off', ['gzip'], [gzip.subarray(0, 12)], 5, 'not decodable'],
    ['something else', ['gzip'], [noise], 50, 'not decodable'],
    ['nothing at all', ['gzip'], [], 0, 'fits'],
    ['deflate with its wrapper', ['deflate'], [deflateSync('hello')], 5, 'fits'],
    ['deflate without', ['deflate'], [deflateRawSync('hello')], 5, 'fits'],
    ['deflate without, too large', ['deflate'], [deflateRawSync('hello')], 4, 'too large'],
    ['noise after the end of deflate', ['deflate'], [deflateSync('hello'), noise, bomb], 5, 'fits'],
    ['brotli', ['br'], [brotliCompressSync('hello')], 5, 'fits'],
    ['a brotli bomb', ['br'], [brotliCompressSync(Buffer.alloc(5_000_000))], 1000, 'too large'],
    ['brotli, then gzip', ['br', 'gzip'], [gzipSync(brotliCompressSync('hello'))], 5, 'fits'],
    ['brotli, then gzip, too large', ['br', 'gzip'], [gzipSync(brotliCompressSync('hello'))], 4, 'too large'],
  ]
  for (const [title, codings, pieces, maxBytes, expected] of rows)
    for (const isFast of [false, true])
      t.equal(await countAll(codings, pieces, maxBytes, isFast), expected, `${title}${isFast ? ', at once' : ''}`)
})

t.test('[edge/passthrough.20] which codings can be counted', async t => {
  t.ok(DecodedSize.canCount(['gzip', 'br', 'deflate', 'x-gzip']))
  for (const codings of [['zstd'], ['gzip', 'zstd'], ['constructor'], ['__proto__'], Array(5).fill('gzip')])
    t.notOk(DecodedSize.canCount(codings), codings.join())
})

t.test('[edge/passthrough.20] after close nothing is called back', async t => {
  const size = new DecodedSize(['gzip'], 10, () => t.fail('ended'))
  size.add(gzipSync('hello'), () => t.fail('called back'))
  size.close()
  await new Promise(resolve => setImmediate(resolve))
})
