import t from 'tap'
import { segmentsOf } from '../../lib/core/pattern.ts'
import { RadixTree } from '../../lib/router/radix-tree.ts'
import { patternOf } from '../helpers/claims.ts'

const toEntry = (text: string, value: string) => ({ segments: segmentsOf(patternOf(text)), value })

t.test('[router/radix-tree.5] the value of a pattern is found by any pattern that matches the same paths', async t => {
  const patterns = [
    ...['/', '/users', '/users/me', '/users/:id', '/users/:id/posts', '/user', '/%C3%A9/x', '/%C3%A8', '/%C3%BCber'],
    ...['/docs', '/docs/:slug*', '/docs/:slug*?', '/docs/*', '/:a/:b/:c', '/a%2Fb', '/:any'],
  ]
  const tree = new RadixTree(patterns.map(text => toEntry(text, text)))
  const at = (text: string) => tree.at(segmentsOf(patternOf(text)))
  for (const text of patterns) t.equal(at(text), text)
  for (const [text, other] of [
    ['/users/:name', '/users/:id'],
    ['/:x/:y/:z', '/:a/:b/:c'],
    ['/docs/:rest*', '/docs/:slug*'],
    ['/docs/:rest*?', '/docs/:slug*?'],
    ['/%c3%a9/x', '/%C3%A9/x'],
  ] as const)
    t.equal(at(text), other, text)
  for (const text of [
    '/us',
    '/use',
    '/users/me/x',
    '/v',
    '/%C3%BC',
    '/users/:id/post',
    '/users/:id/posts/:x',
    '/x/y',
    '/users/*',
    '/:a/:b',
    '/%C3%AA',
    '/a/b',
  ])
    t.equal(at(text), null, text)
  t.equal(new RadixTree<string>([]).at([]), null)
})

t.test('[router/route-table.22] a tree that is added to leaves the nodes of the one before as they are', async t => {
  const before = new RadixTree([toEntry('/users/list', '1'), toEntry('/users/:id/x', '2')])
  const after = new RadixTree([toEntry('/users/link', '3'), toEntry('/users/:name/x', '4')], before)
  const at = (tree: RadixTree<string>, text: string) => tree.at(segmentsOf(patternOf(text)))
  t.same(
    ['/users/list', '/users/link', '/users/:id/x'].map(text => [at(before, text), at(after, text)]),
    [
      ['1', '1'],
      [null, '3'],
      ['2', '4'],
    ],
  )
})
