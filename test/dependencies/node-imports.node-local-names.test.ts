import t from 'tap'
import { NodeLocalNames } from '../../lib/dependencies/node-imports.ts'
import { makeTree } from '../helpers/tree.ts'

t.test('[dependencies/node.18] names that paths of a tsconfig.json lead to files are no packages', async t => {
  const tree = makeTree({
    'tsconfig.json': '{ "compilerOptions": { "paths": { "above": ["./lib/above.ts"] } } }',
    'lib/above.ts': '',
    'a/tsconfig.json': `{
      // Comments, and a comma at the end
      "compilerOptions": { "baseUrl": "./src", "paths": { "helper": ["./helper.ts"], "lib/*": ["../libs/*"], "*": ["./any/*"], "odd": 1, }, },
    }`,
    'a/src/helper.ts': '',
    'a/libs/x/index.js': '',
    'a/src/any/deep.mjs': '',
    'b/handler.ts': '',
    'c/tsconfig.json': '{ "extends": "../base" }',
    'base.json': '{ "compilerOptions": { "paths": { "based": ["./lib/above"] } } }',
    'd/tsconfig.json': '{ broken',
    'e/tsconfig.json': '{ "extends": "./tsconfig.json" }',
  })
  t.teardown(tree.cleanup)
  const mapped = (name: string, specifiers: string[]) => {
    const names = new NodeLocalNames(tree.path(name), tree.root, [])
    return specifiers.filter(one => names.isMapped(one))
  }
  const all = ['helper', 'lib/x', 'lib/none', 'deep', 'lodash', 'above', 'based', 'helper/x', 'odd']
  t.same(mapped('a', all), ['helper', 'lib/x', 'deep'])
  t.same(mapped('b', all), ['above'])
  t.same(mapped('c', all), ['based'])
  t.same(mapped('d', all), [])
  t.same(mapped('e', all), [])
})

t.test(
  '[dependencies/node.18] a file beside, imported without ./, is no package; a handler may be called like one',
  async t => {
    const tree = makeTree({
      'a/handler.js': '',
      'a/helper.ts': '',
      'a/pack/index.js': '',
      'a/stripe.js': '',
      'a/empty/x.js': '',
    })
    t.teardown(tree.cleanup)
    const names = new NodeLocalNames(tree.path('a'), tree.root, [tree.path('a/handler.js'), tree.path('a/stripe.js')])
    t.same(
      ['helper', 'pack', 'stripe', 'empty', 'lodash', '@a/b'].filter(name => names.isBeside(name)),
      ['helper', 'pack'],
    )
  },
)
