/** Settings: value, source and description of each; changed ones first. Owner: page console/settings. */

import { useLoad } from '../data/load.ts'
import { formatNumberOf } from '../format.ts'
import { Empty } from '../parts/empty.tsx'
import { LoadState } from '../parts/load-state.tsx'
import { Page } from '../parts/page.tsx'
import { query } from '../router.ts'
import { type Setting, toGroups, toSourceText, toValueText } from './settings/setting-list.ts'
import { SwitchList } from './settings/switch-list.tsx'
import { SearchField } from '../parts/search-field.tsx'

interface Answer {
  readonly settings: readonly Setting[]
  /** Absent where the caller may not see it. */
  readonly config_file?: string | null
}

export function SettingsPage() {
  const loaded = useLoad<Answer>('/_fn/settings')
  const search = query.value.get('q') ?? ''
  return (
    <Page
      title="Settings"
      question="Which settings are in force?"
      tools={<SearchField label="Search settings" value={search} />}
    >
      <LoadState loaded={loaded} />
      {loaded.data !== null && (
        <>
          {search === '' && <SwitchList />}
          <Groups answer={loaded.data} search={search} />
        </>
      )}
    </Page>
  )
}

function Groups({ answer: { settings, config_file: file }, search }: { answer: Answer; search: string }) {
  const groups = toGroups(settings, search)
  const found = groups.reduce((sum, group) => sum + group.settings.length, 0)
  return (
    <>
      <p class="quiet" role="status">
        {search === ''
          ? `${formatNumberOf(settings.length, 'setting')}.${toFileText(file)}`
          : `${formatNumberOf(found, 'setting')} of ${settings.length}.`}
      </p>
      {groups.map(({ title, settings: rows }) => (
        <section class="block" key={title}>
          <h2>{title}</h2>
          <ul class="settings">
            {rows.map(setting => (
              <Row setting={setting} key={setting.name} />
            ))}
          </ul>
        </section>
      ))}
      {groups.length === 0 && <Empty title="No settings match" />}
    </>
  )
}

function toFileText(file: string | null | undefined): string {
  if (file === undefined) return ''
  return file === null ? ' No project file (fngw.json) was read.' : ` Project file: ${file}.`
}

function Row({ setting }: { setting: Setting }) {
  const { name, env, flag, key, unit, value, default: fallback, source, meaning } = setting
  const isChanged = source.kind !== 'default'
  const others = [flag, key === null ? null : `"${key}" in fngw.json`].filter(text => text !== null)
  return (
    <li>
      <div>
        <span class="mono">{env ?? name}</span>
        <div class="quiet">{others.join(', ')}</div>
      </div>
      <div>
        <span class="mono">{toValueText(value, unit)}</span>
        <div class="quiet">
          {toSourceText(source)}
          {isChanged && fallback !== null && `; default ${toValueText(fallback, unit)}`}
        </div>
      </div>
      <div>{meaning}</div>
    </li>
  )
}
