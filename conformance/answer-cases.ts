/** Cases of what handlers return: values, envelopes, statuses, headers, bodies. Owner: page bin/conformance. */

import { type Case, check, JSON_TYPE, BYTES_TYPE, TEXT_TYPE, toError, type Wanted } from './case.ts'
import { COMPILED, type Lacks, ONE_EMPTY_TABLE } from './languages.ts'

export const ANSWER_CASES: readonly Case[] = [
  {
    title: '[invocation/response.12] a bare value is a JSON body with status 200, nothing is an empty one',
    run: async bed => {
      const values = [
        'hi',
        '',
        'ünï ☃ 𝄞',
        '{"a":1}',
        42,
        -1.5,
        0,
        true,
        false,
        [1, [2]],
        { a: 1 },
        { a: { b: [null] } },
      ]
      await bed.runRows([
        ...values.map(value => ({ value, want: { type: JSON_TYPE, json: value }, lacks: COMPILED })),
        { value: {}, want: { type: JSON_TYPE, text: '{}' }, lacks: COMPILED },
        { value: [], want: { type: JSON_TYPE, text: '[]' }, lacks: { ...COMPILED, ...ONE_EMPTY_TABLE } },
        { value: { a: [] }, want: { text: '{"a":[]}' }, lacks: { ...COMPILED, ...ONE_EMPTY_TABLE } },
        { value: null, want: { type: null, text: '' }, lacks: COMPILED },
        // Like an envelope, but none.
        { value: { headers: { a: 'b' } }, want: { type: JSON_TYPE, json: { headers: { a: 'b' } } }, lacks: COMPILED },
        { value: { body: 'x' }, want: { type: JSON_TYPE, json: { body: 'x' } }, lacks: COMPILED },
      ])
      await bed.each(COMPILED, async (t, language) => {
        check(t, 'nothing at all', await bed.ask(language, 'nothing'), { type: null, text: '' })
      })
    },
  },
  {
    title: '[invocation/response.13, invocation/response.14] an envelope, and what its body becomes',
    run: async bed => {
      await bed.runRows([
        { value: { status: 201 }, want: { status: 201, type: null, text: '' } },
        { value: { status: 200, body: 'x ü' }, want: { type: TEXT_TYPE, text: 'x ü' } },
        { value: { status: 200, body: '{"a":1}' }, want: { type: TEXT_TYPE, text: '{"a":1}' } },
        { value: { status: 200, body: 'a\0b\r\n' }, want: { type: TEXT_TYPE, text: 'a\0b\r\n' } },
        { value: { status: 200, body: '' }, want: { text: '' } },
        { value: { status: 200, body: null }, want: { type: null, text: '' } },
        { value: { status: 200, body: { a: [1] } }, want: { type: JSON_TYPE, text: '{"a":[1]}' } },
        { value: { status: 200, body: {} }, want: { type: JSON_TYPE, text: '{}' } },
        { value: { status: 200, body: [] }, want: { type: JSON_TYPE, text: '[]' }, lacks: ONE_EMPTY_TABLE },
        { value: { status: 200, body: [1, 'b'] }, want: { type: JSON_TYPE, text: '[1,"b"]' } },
        { value: { status: 200, body: 5 }, want: { type: JSON_TYPE, text: '5' } },
        { value: { status: 200, body: false }, want: { type: JSON_TYPE, text: 'false' } },
        { value: { status: 200, more: 1, body: 'x' }, want: { text: 'x' } },
        { value: { headers: { a: 'b' }, body: 'x' }, want: { type: TEXT_TYPE, headers: { a: 'b' } }, lacks: COMPILED },
        { value: { statusCode: 202, body: 'x' }, want: { status: 202, type: TEXT_TYPE }, lacks: {} },
        { value: { status: 203, statusCode: 202 }, want: { status: 203 } },
        {
          value: { status: 200, headers: { 'CONTENT-TYPE': 'text/html' }, body: '<p>' },
          want: { type: 'text/html', text: '<p>' },
        },
        {
          value: { status: 200, headers: { 'Content-Type': JSON_TYPE }, body: '{"a": 1}' },
          want: { type: JSON_TYPE, text: '{"a": 1}' },
        },
        {
          value: { status: 200, headers: { 'content-type': 'application/vnd.x+json' }, body: { a: 1 } },
          want: { type: 'application/vnd.x+json', text: '{"a":1}' },
        },
      ])
    },
  },
  {
    title:
      '[invocation/response.2, invocation/response.5, invocation/response.19] statuses from 200 to 599, and others',
    run: async bed => {
      const must = 'status must be an integer from 100 to 599, got '
      const long = 'x'.repeat(100)
      const wrong: [unknown, string][] = [
        [99, '99 (number)'],
        [600, '600 (number)'],
        [-1, '-1 (number)'],
        [0, '0 (number)'],
        [200.5, '200.5 (number)'],
        ['200', '"200" (string)'],
        ['zweihundert ü', '"zweihundert ü" (string)'],
        [long, `"${long.slice(0, 60)}..." (string)`],
        [true, 'true (boolean)'],
        [null, 'null'],
        [{ a: 1 }, 'an object'],
        [[200], 'an array of 1 item'],
        [[1, 2], 'an array of 2 items'],
      ]
      await bed.runRows([
        ...[200, 201, 299, 301, 400, 404, 418, 500, 503, 599].map(status => ({
          value: { status, body: 'x' },
          want: { status, text: 'x' },
        })),
        ...[204, 304].map(status => ({
          value: { status, body: 'x' },
          want: { status, text: '', headers: { 'content-length': null } },
        })),
        ...[100, 101, 199].map(status => ({
          value: { status },
          want: { broken: `status ${status} is informational and cannot end a request` },
        })),
        ...wrong.map(([status, shown]) => ({ value: { status, body: 'x' }, want: { broken: must + shown } })),
      ])
      await bed.each({}, async (t, language) => {
        if (language.label === 'rs') t.pass('NaN', { skip: 'a JSON value of Rust is never NaN' })
        else check(t, 'NaN', await bed.ask(language, 'nan'), { broken: `${must}NaN (number)` })
        const whole = await bed.ask(language, 'return', { method: 'POST', body: '{"status": 200.0, "body": "x"}' })
        check(t, '200.0', whole, { text: 'x' })
      })
    },
  },
  {
    title: '[invocation/response.3, invocation/response.4, invocation/response.15] headers of an answer',
    run: async bed => {
      const name = (text: string) => ({ broken: `header name ${JSON.stringify(text)} is not allowed in HTTP` })
      const char = (code: string) => ({
        broken: `header "a" holds the character ${code}, which HTTP does not allow there`,
      })
      const value = 'header "a" must be a string, a number, a boolean or a list of them, got '
      const rows: [headers: unknown, want: Wanted, lacks?: Lacks][] = [
        [{ 'X-A': 'b', a: '' }, { headers: { 'x-a': 'b', a: '' } }],
        [
          { a: 5, b: true, c: null, d: 1.5, e: 'é\t!' },
          { headers: { a: '5', b: 'true', c: null, d: '1.5', e: 'é\t!' } },
        ],
        [{ 'Set-Cookie': ['a=1; Path=/', 'b=2'] }, { headers: { 'set-cookie': ['a=1; Path=/', 'b=2'] } }],
        [{ 'x-n': ['1', 2, false], 'x-e': [] }, { headers: { 'x-n': '1, 2, false', 'x-e': null } }],
        [{ Connection: 'x-hop', 'X-Hop': '1', 'X-Kept': '1' }, { headers: { 'x-hop': null, 'x-kept': '1' } }],
        [
          { 'Content-Length': '3', 'Transfer-Encoding': 'gzip', 'Keep-Alive': 'x' },
          { headers: { 'content-length': '4' } },
        ],
        [{ __proto__x: '1', constructor: '2' }, { headers: { __proto__x: '1', constructor: '2' } }],
        [null, {}],
        [{}, {}],
        [[], {}],
        ['x', { broken: 'headers must be an object, got "x" (string)' }],
        [5, { broken: 'headers must be an object, got 5 (number)' }],
        [['a'], { broken: 'headers must be an object, got an array of 1 item' }],
        [{ 'bad name': 'x' }, name('bad name')],
        [{ '': 'x' }, name('')],
        [{ 'a:': 'x' }, name('a:')],
        [{ 'a\r\nb': 'x' }, name('a\r\nb')],
        [{ ü: 'x' }, name('ü')],
        [{ a: 'x\r\nset-cookie: y=1' }, char('U+000D')],
        [{ a: 'x\ny' }, char('U+000A')],
        [{ a: ['x', 'y\0'] }, char('U+0000')],
        [{ a: '\u007f' }, char('U+007F')],
        [{ a: 'snow ☃' }, char('U+2603')],
        [{ a: { b: 1 } }, { broken: `${value}an object` }],
        [{ a: [1, { b: 1 }] }, { broken: `${value}an object` }],
        [{ a: ['x', ['y']] }, { broken: `${value}an array of 1 item` }],
      ]
      await bed.runRows(
        rows.map(([headers, want, lacks]) => ({
          value: { status: 200, headers, body: 'four' },
          want,
          lacks: lacks ?? {},
        })),
      )
      await bed.each({}, async (t, language) => {
        const { rawHeaders } = await bed.giveBack(language, { status: 200, headers: { 'Set-Cookie': ['a=1', 'b=2'] } })
        const cookies = rawHeaders.filter((_, at) => rawHeaders[at - 1]?.toLowerCase() === 'set-cookie')
        t.same(cookies, ['a=1', 'b=2'], 'two lines')
      })
    },
  },
  {
    title: '[invocation/response.16] bodies given as base64',
    run: async bed => {
      const must = 'body_base64 must be base64 text, got '
      const all = Buffer.from(Array.from({ length: 256 }, (_, i) => i))
      await bed.runRows([
        { value: { status: 200, is_base64: true, body_base64: 'YWI=' }, want: { type: BYTES_TYPE, text: 'ab' } },
        { value: { status: 200, body_base64: 'YWI=' }, want: { type: BYTES_TYPE, text: 'ab' } },
        { value: { status: 200, is_base64: true, body_base64: 'YWI' }, want: { text: 'ab' } },
        { value: { status: 200, is_base64: true, body_base64: '' }, want: { text: '' } },
        { value: { status: 200, is_base64: true, body: 'x', body_base64: 'YWI=' }, want: { text: 'ab' } },
        {
          value: { status: 200, is_base64: false, body: 'x', body_base64: 'YWI=' },
          want: { type: TEXT_TYPE, text: 'x' },
        },
        {
          value: { status: 200, is_base64: true, body_base64: 'YWI=', headers: { 'content-type': 'image/png' } },
          want: { type: 'image/png', text: 'ab' },
        },
        { value: { status: 200, is_base64: true }, want: { broken: 'is_base64 is true, but body_base64 is missing' } },
        {
          value: { status: 200, is_base64: 'yes', body_base64: '' },
          want: { broken: 'is_base64 must be true or false, got "yes" (string)' },
        },
        ...['###', 'Y', 'YWI==', 'Y=I=', 'YW\nI=', ' YWI='].map(text => ({
          value: { status: 200, is_base64: true, body_base64: text },
          want: { broken: `${must}${JSON.stringify(text)} (string)` },
        })),
        { value: { status: 200, is_base64: true, body_base64: 5 }, want: { broken: `${must}5 (number)` } },
      ])
      await bed.each({}, async (t, language) => {
        const { body } = await bed.giveBack(language, {
          status: 200,
          is_base64: true,
          body_base64: all.toString('base64'),
        })
        t.ok(body.equals(all), 'all 256 byte values')
      })
    },
  },
  {
    title: '[invocation/response.9, invocation/response.17] a proxy directive needs an edge policy',
    run: async bed => {
      const disabled = { status: 502, json: { error: 'edge proxy disabled for this function' } }
      await bed.runRows([
        {
          value: { proxy: { path: '/x', method: 'POST', headers: { a: 'b' }, body: { a: 1 }, timeout_ms: 5 } },
          want: disabled,
        },
        { value: { status: 200, body: 'x', proxy: { path: '/x' } }, want: disabled },
        { value: { status: 200, body: 'x', proxy: null }, want: { text: 'x' } },
        { value: { proxy: 'x' }, want: { broken: 'proxy must be an object, got "x" (string)' } },
        { value: { proxy: [1, 2] }, want: { broken: 'proxy must be an object, got an array of 2 items' } },
      ])
    },
  },
  {
    title: '[invocation/response.18] explicit envelopes alone in compiled languages',
    run: async bed => {
      await bed.each({}, async (t, language) => {
        if (COMPILED[language.label] === undefined) {
          t.ok(true, 'has shorthands')
          return
        }
        for (const value of ['x', 5, [1], { a: 1 }, { body: 'x' }, null]) {
          const answer = await bed.giveBack(language, value)
          t.equal(answer.status, 502, JSON.stringify(value))
          t.match(toError(answer), /^invalid runtime response: /, `${JSON.stringify(value)}: why`)
        }
      })
    },
  },
]
