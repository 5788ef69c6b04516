import t from 'tap'
import { toHexDump, toImageType, toPrettyJson, toPreviewKind, toText } from '../../console/preview.ts'

const bytesOf = (text: string): Uint8Array => new Uint8Array(Buffer.from(text, 'latin1'))

t.test('[console/try.5] what an answer is shown as', async t => {
  const cases: [type: string, text: string, kind: string][] = [
    ['application/json', '', 'empty'],
    ['application/json; charset=utf-8', '{"a":1}', 'json'],
    ['application/problem+json', '[]', 'json'],
    ['', '{"a":1}', 'json'],
    ['application/json', 'not json', 'text'],
    ['text/html', '<script>alert(1)</script>', 'text'],
    ['image/png', '\x89PNG\r\n', 'image'],
    ['image/svg+xml', '<svg xmlns=""><script/></svg>', 'image'],
    ['image/png', '<svg/>', 'text'],
    ['text/html', '\x89PNG\r\n', 'binary'],
    ['application/octet-stream', '\xff\xfe', 'binary'],
    ['text/plain', 'a\0b', 'binary'],
    ['application/json', `[${'1,'.repeat(2 ** 20)}1]`, 'text'],
  ]
  for (const [type, text, kind] of cases)
    t.equal(toPreviewKind(type, bytesOf(text)), kind, `${type} ${text.slice(0, 40)}`)
  t.equal(toImageType('image/png', bytesOf('\x89PNG\r\n')), 'image/png')
  t.equal(toImageType('image/png', bytesOf('<svg/>')), null)
  t.equal(toText(bytesOf('\xff')), null)
})

t.test('[console/try.5] JSON is indented with every number and key as it was written', async t => {
  const same = [
    '{"a":1,"b":[true,null,"x"],"c":{"d":{}},"e":[]}',
    '[]',
    '{}',
    '"a \\" { [ , : "',
    '3.10',
    '[[],[[]],{"a":[{}]}]',
  ]
  for (const text of same) t.equal(toPrettyJson(text), JSON.stringify(JSON.parse(text), null, 2).replace('3.1', '3.10'))
  t.match(
    toPrettyJson('{"id":12345678901234567890,"n":1.000,"n":2e1}'),
    /12345678901234567890,\n {2}"n": 1.000,\n {2}"n": 2e1/,
  )
  t.equal(toPrettyJson('{'), null)
})

t.test('[console/try.5] bytes in hex', async t => {
  t.equal(
    toHexDump(bytesOf('abcdefghijklmnop\0\x7f'), 100),
    '00000000  61 62 63 64 65 66 67 68 69 6a 6b 6c 6d 6e 6f 70  abcdefghijklmnop\n' +
      `00000010  00 7f${' '.repeat(44)}..`,
  )
  t.equal(toHexDump(bytesOf('abc'), 2).includes('63'), false)
})
