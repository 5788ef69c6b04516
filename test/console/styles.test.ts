import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import t from 'tap'

const folder = fileURLToPath(new URL('../../console/styles/', import.meta.url))

/** Selectors of a style sheet, those inside of media queries too. */
function selectorsOf(css: string): string[] {
  return [...css.replace(/\/\*.*?\*\//gs, '').matchAll(/([^{}@;]+)\{/g)].flatMap(match =>
    (match[1] as string).split(',').map(selector => selector.trim()),
  )
}

t.test('[console/console.8] no two style sheets say something of the same selector', async t => {
  const owners = new Map<string, Set<string>>()
  for (const file of readdirSync(folder)) {
    if (file === 'style.css' || file === 'theme.css') continue
    for (const selector of selectorsOf(readFileSync(`${folder}${file}`, 'utf8')))
      if (selector !== '' && !selector.startsWith('media'))
        owners.set(selector, (owners.get(selector) ?? new Set()).add(file))
  }
  t.ok(owners.size > 100, `${owners.size} selectors`)
  t.same(
    [...owners]
      .filter(([, files]) => files.size > 1)
      .map(([selector, files]) => `${selector}: ${[...files].join(', ')}`),
    [],
  )
})
