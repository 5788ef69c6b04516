import t from 'tap'
import { checkPolicy, isMethodAllowed, toMethodError } from '../../lib/invocation/invoke.ts'
import { makeFn } from '../helpers/fn.ts'

t.test('[invocation/admission.13] declared length, adapter and method are checked', async t => {
  const fn = makeFn({ policy: { maxBodyBytes: 10, methods: ['GET', 'PUT'] } })
  t.equal(checkPolicy(fn, 0), null)
  t.equal(checkPolicy(fn, -1), null, 'unknown length')
  t.equal(checkPolicy(fn, 10), null)
  t.match(checkPolicy(fn, 11), { status: 413, message: 'payload too large: the limit is 10 bytes' })
  const odd = makeFn({ policy: { adapter: null, adapterName: 'aws' } })
  t.match(checkPolicy(odd, 0), {
    status: 500,
    message: 'unknown adapter: invoke.adapter is "aws"',
    detail: { hint: /native/ },
  })
  for (const [method, isAllowed] of [
    ['GET', true],
    ['HEAD', true],
    ['PUT', true],
    ['POST', false],
    ['OPTIONS', false],
    ['get', false],
    ['__proto__', false],
  ] as const)
    t.equal(isMethodAllowed(fn, method), isAllowed, method)
  t.equal(isMethodAllowed(makeFn({ policy: { methods: ['POST'] } }), 'HEAD'), false)
  t.match(toMethodError(['GET', 'POST']), { status: 405, headers: { Allow: 'GET, HEAD, POST' } })
})
