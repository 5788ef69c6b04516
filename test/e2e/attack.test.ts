import t from 'tap'
import { ATTACKS, runAttack } from '../attack/attacks.ts'
import { attackLinks } from '../attack/links.ts'
import { startTarget } from '../attack/target.ts'
import { buildProduct } from '../helpers/built.ts'

const product = buildProduct()
t.teardown(product.cleanup)

t.test('[reliability.8] attacks break nothing', async t => {
  const target = await startTarget(product)
  t.teardown(() => target.close())
  for (const attack of ATTACKS) {
    const { broken, seen } = await runAttack(attack, target, 'quick')
    t.same(broken, [], attack.name)
    t.comment(seen)
  }
})

t.test('[reliability.8] links lead nowhere', async t => {
  const { broken } = await attackLinks(product, ['.svc', '.svc/logs', '.svc/logs/access.log', '.svc/build/tmp'])
  t.same(broken, [])
})
