import t from 'tap'
import { ATTACKS, runAttack } from '../attack/attacks.ts'
import { attackDaemon } from '../attack/daemons.ts'
import { attackLinks } from '../attack/links.ts'
import { attackSeveral } from '../attack/several.ts'
import { startTarget } from '../attack/target.ts'
import { attackUsers, findUserObstacle } from '../attack/users.ts'
import { buildProduct } from '../helpers/built.ts'
import { hasOpenssl } from '../helpers/remote-bed.ts'

const product = buildProduct()
t.teardown(product.cleanup)
// For the tests behind the first one, which mostly wait for their gateways.
t.jobs = 2

t.test('[reliability.8] attacks break nothing', async t => {
  const target = await startTarget(product)
  t.teardown(() => target.close())
  for (const attack of ATTACKS) {
    const { broken, seen } = await runAttack(attack, target, 'quick')
    t.same(broken, [], attack.name)
    t.comment(seen)
  }
})

t.test('[reliability.8] links lead nowhere', { buffered: true }, async t => {
  const { broken } = await attackLinks(product, ['.svc', '.svc/logs', '.svc/logs/access.log', '.svc/build/tmp'])
  t.same(broken, [])
})

const skip = !hasOpenssl() && 'openssl is not installed'
t.test(
  '[reliability.8] strangers at a daemon neither run code nor keep a gateway away',
  { buffered: true, skip },
  async t => {
    const { broken, seen } = await attackDaemon(product, 'quick')
    t.same(broken, [])
    t.comment(seen)
  },
)

t.test(
  '[reliability.8] of several gateways on one folder one keeps the jobs, and the next one goes on',
  { buffered: true },
  async t => {
    const { broken, seen } = await attackSeveral(product, 'quick')
    t.same(broken, [])
    t.comment(seen)
  },
)

t.test(
  '[reliability.8, runtime/isolation.17] functions that are kept apart by users reach nothing of others',
  { buffered: true, skip: findUserObstacle() ?? false },
  async t => {
    const { broken, seen } = await attackUsers(product)
    t.same(broken, [])
    t.comment(seen)
  },
)
