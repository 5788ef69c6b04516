import t from 'tap'
import { type AssetHead, decide, decideRange, parseHttpDate, readAssetHead } from '../../lib/assets/request.ts'

const SECONDS = 784_111_777
const DATE = 'Sun, 06 Nov 1994 08:49:37 GMT'
const LATER = 'Sun, 06 Nov 1994 08:49:38 GMT'
const EARLIER = 'Sun, 06 Nov 1994 08:49:36 GMT'
const FILE = { etag: '"abc"', modifiedSeconds: SECONDS }
const head = (fields: Partial<AssetHead>): AssetHead => ({ ...readAssetHead([]), ...fields })

t.test('[assets/static-assets.17, assets/static-assets.18, assets/static-assets.21] conditions', async t => {
  const range = 'bytes=0-0'
  for (const [fields, status] of [
    [{}, 200],
    [{ ifNoneMatch: '"abc"' }, 304],
    [{ ifNoneMatch: 'W/"abc"' }, 304],
    [{ ifNoneMatch: '*' }, 304],
    [{ ifNoneMatch: ' * ' }, 304],
    [{ ifNoneMatch: '"x", W/"y" ,"abc"' }, 304],
    [{ ifNoneMatch: '"a,b","abc"' }, 304],
    [{ ifNoneMatch: '"x"' }, 200],
    [{ ifNoneMatch: 'abc' }, 200],
    [{ ifNoneMatch: '' }, 200],
    [{ ifNoneMatch: '"x"', ifModifiedSince: DATE }, 200],
    [{ ifModifiedSince: DATE }, 304],
    [{ ifModifiedSince: LATER }, 304],
    [{ ifModifiedSince: EARLIER }, 200],
    [{ ifModifiedSince: 'yesterday' }, 200],
    [{ ifModifiedSince: '1994' }, 200],
    [{ ifMatch: '"abc"' }, 200],
    [{ ifMatch: '*' }, 200],
    [{ ifMatch: 'W/"abc"' }, 412],
    [{ ifMatch: '"x"' }, 412],
    [{ ifMatch: '"abc"', ifUnmodifiedSince: EARLIER }, 200],
    [{ ifMatch: '"abc"', ifNoneMatch: '"abc"' }, 304],
    [{ ifUnmodifiedSince: DATE }, 200],
    [{ ifUnmodifiedSince: EARLIER }, 412],
    [{ ifUnmodifiedSince: 'x' }, 200],
    [{ range }, 206],
    [{ range, ifNoneMatch: '"abc"' }, 304],
    [{ range, ifRange: '"abc"' }, 206],
    [{ range, ifRange: 'W/"abc"' }, 200],
    [{ range, ifRange: '"x"' }, 200],
    [{ range, ifRange: DATE }, 206],
    [{ range, ifRange: LATER }, 200],
    [{ range, ifRange: EARLIER }, 200],
    [{ range, ifRange: 'x' }, 200],
    [{ range: 'bytes=9-', ifRange: '"x"' }, 200],
  ] as [Partial<AssetHead>, number][]) {
    t.equal(decide('GET', head(fields), FILE, 5).status, status, JSON.stringify(fields))
  }
  t.equal(decide('HEAD', head({ range }), FILE, 5).status, 200, 'ranges mean something with GET only')
  t.equal(decide('HEAD', head({ ifNoneMatch: '*' }), FILE, 5).status, 304)
})

t.test('[assets/static-assets.17] the three forms of a date', async t => {
  for (const text of [DATE, 'Sunday, 06-Nov-94 08:49:37 GMT', 'Sun Nov  6 08:49:37 1994'])
    t.equal(parseHttpDate(text), SECONDS, text)
  for (const text of [
    '',
    '0',
    '1994-11-06',
    '1994-11-06T08:49:37Z',
    'Sun, 06 Nov 1994 08:49:37',
    `${DATE} x`,
    'Sun, 99 Foo 1994 08:49:37 GMT',
  ])
    t.equal(parseHttpDate(text), null, text)
})

t.test('[assets/static-assets.19, assets/static-assets.20] ranges of ten bytes', async t => {
  for (const [text, status, start, end] of [
    ['bytes=0-0', 206, 0, 0],
    ['bytes=0-9', 206, 0, 9],
    ['bytes=3-', 206, 3, 9],
    ['bytes=9-9', 206, 9, 9],
    ['bytes=2-999', 206, 2, 9],
    ['bytes=-1', 206, 9, 9],
    ['bytes=-10', 206, 0, 9],
    ['bytes=-999', 206, 0, 9],
    ['bytes= 1-2 ', 206, 1, 2],
    ['BYTES=1-2', 206, 1, 2],
    ['bytes=1-2,', 206, 1, 2],
    ['bytes=10-', 416],
    ['bytes=10-20', 416],
    ['bytes=-0', 416],
    ['bytes=99999999999999999999-', 416],
    ['bytes=10-,20-', 416],
    ['bytes=0-1,4-5', 200],
    ['bytes=0-1,40-', 200],
    ['bytes=5-4', 200],
    ['bytes=', 200],
    ['bytes=,', 200],
    ['bytes=-', 200],
    ['bytes=a-b', 200],
    ['bytes=1', 200],
    ['bytes=1-2-3', 200],
    ['bytes=+1-2', 200],
    ['bytes=1-2,x', 200],
    ['bytes=0x1-2', 200],
    ['items=0-1', 200],
    ['bytes:0-1', 200],
    ['', 200],
  ] as [string, number, number?, number?][]) {
    const { status: found, range } = decideRange(text, 10)
    t.equal(found, status, text)
    t.same(range, start === undefined ? null : { start, end }, text)
  }
  t.equal(decide('GET', head({ range: 'bytes=0-' }), FILE, 0).status, 200, 'an empty file has no range')
  t.equal(decideRange(`bytes=${'0-0,'.repeat(4000)}1-1`, 10).status, 200, 'thousands of ranges')
  t.equal(decideRange(`bytes=${'20-30,'.repeat(2700)}`, 10).status, 416)
})
