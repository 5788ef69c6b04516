import { linkSync, symlinkSync } from 'node:fs'
import t from 'tap'
import { toResultText, toSizeText } from '../../lib/dependencies/build.ts'
import { joinResults } from '../../lib/dependencies/install.ts'
import { sizeOf } from '../../lib/dependencies/package-set.ts'
import { makeTree } from '../helpers/tree.ts'

const PACKAGES = { packages: 4, bytes: 34_000_000, names: ['requests==2.32.3'], isShared: false }

t.test('[dependencies/install.10] what was made, for whom, how long it took and how large it is', async t => {
  for (const [made, text] of [
    [PACKAGES, 'installed 4 packages for python/hello@default in 2.3 s, 34 MB: requests==2.32.3'],
    [
      { ...PACKAGES, packages: 1, names: [], isShared: true },
      'installed 1 package for python/hello@default in 2.3 s, 34 MB shared with others',
    ],
    [
      { ...PACKAGES, names: ['a', 'b', 'c', 'd', 'e', 'f', 'g'] },
      'installed 4 packages for python/hello@default in 2.3 s, 34 MB: a, b, c, d, e and 2 more',
    ],
    [{ ...PACKAGES, packages: 0, bytes: 0 }, 'installed no packages for python/hello@default in 2.3 s: none is needed'],
    [{ ...PACKAGES, packages: null, bytes: 2_100_000 }, 'built python/hello@default in 2.3 s, 2.1 MB'],
  ] as const)
    t.equal(toResultText('python/hello@default', 2345, made), text)
  t.same(joinResults([PACKAGES, { packages: 2, bytes: 5, names: ['left@1.0.0'], isShared: true }]), {
    packages: 6,
    bytes: 34_000_005,
    names: ['requests==2.32.3', 'left@1.0.0'],
    isShared: false,
  })
  t.equal(joinResults([]), null)
})

t.test('[dependencies/install.10] sizes have two or three figures', async t => {
  for (const [bytes, text] of [
    [0, '0 kB'],
    [1, '0.1 kB'],
    [512, '0.5 kB'],
    [9_949, '9.9 kB'],
    [9_950, '10 kB'],
    [999_499, '999 kB'],
    [999_500, '1.0 MB'],
    [2_149_000, '2.1 MB'],
    [34_400_000, '34 MB'],
    [5_000_000_000, '5.0 GB'],
    [7e15, '7000 TB'],
  ] as const)
    t.equal(toSizeText(bytes), text, String(bytes))
})

t.test('[dependencies/install.10] the size of a folder is that of its files, however deep', async t => {
  const tree = makeTree({ 'a/b/c.txt': '12345', 'a/d.txt': '123' })
  t.teardown(tree.cleanup)
  symlinkSync('/', tree.path('a/everything'))
  t.equal(await sizeOf(tree.path('a')), 8)
  linkSync(tree.path('a/d.txt'), tree.path('a/same.txt'))
  t.equal(await sizeOf(tree.path('a')), 11)
})
