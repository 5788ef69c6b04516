import t from 'tap'
import { hostsCover, hostsOverlap, matchesHost, parseHost } from '../../lib/router/settle.ts'

t.test('[router/route-table.17] which request hosts satisfy a rule', async t => {
  const rows: [string, string, boolean][] = [
    ['example.com', 'example.com', true],
    ['example.com', 'EXAMPLE.com', true],
    ['EXAMPLE.COM', 'example.com', true],
    ['example.com', 'example.com.', true],
    ['example.com.', 'example.com', true],
    ['example.com', 'example.com:8080', true],
    ['example.com', 'example.com.:8080', true],
    ['example.com', 'www.example.com', false],
    ['example.com', 'badexample.com', false],
    ['example.com', 'example.com.evil.org', false],
    ['example.com', '', false],
    ['example.com:8080', 'example.com:8080', true],
    ['example.com:8080', 'example.com:80', false],
    ['example.com:8080', 'example.com', false],
    ['*.example.com', 'www.example.com', true],
    ['*.example.com', 'A.B.Example.com.:1', true],
    ['*.example.com', 'example.com', false],
    ['*.example.com', '.example.com', false],
    ['*.example.com', 'badexample.com', false],
    ['*.example.com:8080', 'www.example.com:8080', true],
    ['*.example.com:8080', 'www.example.com', false],
    ['127.0.0.1', '127.0.0.1:3000', true],
    ['::1', '[::1]:3000', true],
    ['[::1]', '[::1]', true],
    ['[::1]:3000', '[::1]:3000', true],
    ['[::1]:3000', '[::1]:3001', false],
    ['[2001:DB8::1]', '[2001:db8::1]', true],
    ['::1', '[::2]', false],
    ['constructor', '__proto__', false],
  ]
  for (const [rule, host, expected] of rows) {
    t.equal(matchesHost([parseHost(rule)], parseHost(host)), expected, `${rule} ${host}`)
  }
  t.ok(matchesHost(['a.test', 'b.test'].map(parseHost), parseHost('b.test')), 'one rule is enough')
})

t.test('[router/route-table.18] which lists overlap, and which cover another', async t => {
  const rows: [string[], string[], boolean, boolean][] = [
    // a, b, overlap, a covers b
    [[], [], true, true],
    [[], ['a.test'], true, true],
    [['a.test'], [], true, false],
    [['a.test'], ['a.test'], true, true],
    [['a.test'], ['b.test'], false, false],
    [['a.test', 'b.test'], ['b.test'], true, true],
    [['b.test'], ['a.test', 'b.test'], true, false],
    [['a.test'], ['a.test:80'], true, true],
    [['a.test:80'], ['a.test'], true, false],
    [['a.test:80'], ['a.test:81'], false, false],
    [['*.test'], ['a.test'], true, true],
    [['a.test'], ['*.test'], true, false],
    [['*.test'], ['test'], false, false],
    [['*.test'], ['*.a.test'], true, true],
    [['*.a.test'], ['*.test'], true, false],
    [['*.a.test'], ['*.b.test'], false, false],
    [['*.test:80'], ['*.test:81'], false, false],
    [['*.test:80'], ['a.test'], true, false],
    [['*.test'], ['a.test:80', '*.b.test'], true, true],
  ]
  for (const [a, b, overlap, cover] of rows) {
    const [x, y] = [a.map(parseHost), b.map(parseHost)]
    t.equal(hostsOverlap(x, y), overlap, `overlap of [${a}] and [${b}]`)
    t.equal(hostsOverlap(y, x), overlap, `overlap of [${b}] and [${a}]`)
    t.equal(hostsCover(x, y), cover, `[${a}] covers [${b}]`)
  }
})
