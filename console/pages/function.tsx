/** One function: how it behaves, what it is made of, and editing it. Owner: page console/function. */

import { useMemo } from 'preact/hooks'
import {
  type FunctionId,
  type FunctionRecord,
  parseFunctionAddress,
  toFunctionPage,
  toKey,
} from '../data/function-records.ts'
import { type History, useHistory } from '../data/history.ts'
import { useLoad } from '../data/load.ts'
import { Empty } from '../parts/empty.tsx'
import { LoadState } from '../parts/load-state.tsx'
import { HistoryCharts } from '../parts/history-charts.tsx'
import { Page } from '../parts/page.tsx'
import { currentRange, RangeChoice } from '../parts/range-choice.tsx'
import { query, toHref } from '../router.ts'
import { CodeTab } from './function/code-tab.tsx'
import { ConfigTab } from './function/config-tab.tsx'
import { DeleteButton } from './function/delete-button.tsx'
import { DependenciesTab } from './function/dependencies-tab.tsx'
import { EnvTab } from './function/env-tab.tsx'
import { Head } from './function/head.tsx'
import { JobsTab } from './function/jobs-tab.tsx'
import { LogsTab } from './function/logs-tab.tsx'
import { useProblems } from './function/problems.ts'
import { RequestsTab } from './function/requests-tab.tsx'
import { ScheduleTab } from './function/schedule-tab.tsx'
import { VersionsTab } from './function/versions-tab.tsx'

const TABS = [
  ['charts', 'Charts'],
  ['code', 'Code'],
  ['config', 'Config'],
  ['env', 'Env'],
  ['versions', 'Versions'],
  ['requests', 'Requests'],
  ['logs', 'Logs'],
  ['jobs', 'Jobs'],
  ['schedule', 'Schedule'],
  ['dependencies', 'Dependencies'],
] as const

export function FunctionPage({ rest }: { rest: string }) {
  const asked = useMemo(() => parseFunctionAddress(rest), [rest])
  const loaded = useLoad<FunctionRecord>(asked === null ? null : '/_fn/function', {
    query: { ...asked },
    on: ['reload'],
  })
  const runtime = asked?.runtime ?? loaded.data?.runtime
  if (asked === null || loaded.error?.status === 404) {
    return (
      <Page title={rest} question="">
        <Empty title="Function not found">
          <p>
            It may have been deleted or renamed.{' '}
            <a href={toHref('functions', { q: asked?.name ?? rest })}>Search functions</a>
          </p>
        </Empty>
      </Page>
    )
  }
  if (runtime === undefined) {
    return (
      <Page title={rest} question="">
        <LoadState loaded={loaded} />
      </Page>
    )
  }
  return <OneFunction id={{ ...asked, runtime }} loaded={loaded} />
}

interface FunctionProps {
  id: FunctionId
  loaded: ReturnType<typeof useLoad<FunctionRecord>>
}

function OneFunction({ id, loaded }: FunctionProps) {
  const record = loaded.data
  const history = useHistory(currentRange().window, { key: toKey(id) })
  const { problems, refresh } = useProblems(id, record, history.data)
  // What is wrong stands above the tabs: it comes with them, because what came later would move them.
  const isKnown = history.data !== null || history.error !== null
  const title = id.version === 'default' ? id.name : `${id.name}@${id.version}`
  return (
    <Page
      title={title}
      question={record === null ? ' ' : `${id.runtime}, ${record.file}`}
      tools={
        <>
          <RangeChoice />
          {record !== null && <TryLink record={record} />}
          {record !== null && <DeleteButton id={id} record={record} />}
        </>
      }
    >
      <LoadState loaded={loaded} />
      {record !== null && isKnown && (
        <>
          <Head id={id} record={record} problems={problems} history={history.data} />
          <Tabs
            id={id}
            record={record}
            problems={problems}
            history={history.data}
            onSaved={() => {
              loaded.reload()
              history.reload()
              refresh()
            }}
          />
        </>
      )}
    </Page>
  )
}

function TryLink({ record: { metadata } }: { record: FunctionRecord }) {
  const { invoke, endpoints } = metadata
  return (
    <a class="button" href={toHref('try', { method: invoke.default_method, path: endpoints.public_route })}>
      Try it
    </a>
  )
}

interface TabsProps {
  id: FunctionId
  record: FunctionRecord
  problems: readonly string[]
  history: History | null
  onSaved: () => void
}

function Tabs({ id, record, problems, history, onSaved }: TabsProps) {
  const wanted = query.value.get('tab')
  const tab = TABS.find(([name]) => name === wanted)?.[0] ?? 'charts'
  return (
    <>
      <nav class="tabs" aria-label="Function">
        {TABS.map(([name, title]) => (
          <a
            key={name}
            href={toHref(toFunctionPage(id), { tab: name === 'charts' ? null : name, range: query.value.get('range') })}
            aria-current={name === tab ? 'page' : undefined}
          >
            {title}
          </a>
        ))}
      </nav>
      <section class="tab" aria-label={TABS.find(([name]) => name === tab)?.[1]}>
        {tab === 'charts' && history !== null && <HistoryCharts history={history} />}
        {tab === 'code' && <CodeTab id={id} record={record} problems={problems} onSaved={onSaved} />}
        {tab === 'config' && <ConfigTab id={id} holding={record} onSaved={onSaved} />}
        {tab === 'env' && <EnvTab id={id} onSaved={onSaved} />}
        {tab === 'versions' && <VersionsTab id={id} />}
        {tab === 'requests' && <RequestsTab id={id} />}
        {tab === 'logs' && <LogsTab id={id} record={record} />}
        {tab === 'jobs' && <JobsTab id={id} />}
        {tab === 'schedule' && <ScheduleTab id={id} />}
        {tab === 'dependencies' && <DependenciesTab id={id} record={record} />}
      </section>
    </>
  )
}
