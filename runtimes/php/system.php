<?php
/** Calls of the C library that PHP lacks, through FFI where it is allowed. Pages: runtime/daemon, runtimes/php. */

declare(strict_types=1);

namespace Fngw;

/** Without FFI every method does nothing, and `$available` is false. */
final class System
{
    private const PR_SET_PDEATHSIG = 1;
    private const PR_SET_CHILD_SUBREAPER = 36;
    private const SYS_CLOSE_RANGE = 436;
    private const CLOSE_RANGE_CLOEXEC = 4;
    /** By the names of prlimit. */
    public const LIMITS = ['fsize' => 1, 'nproc' => 6, 'nofile' => 7];
    private const RLIMIT_DATA = 2;
    private const RLIMIT_CORE = 4;
    /** Megabytes a process needs beside what its function may allocate: code, stacks, libraries' own memory. */
    private const BASE_MEMORY_MB = 256;

    public bool $available = false;
    private mixed $libc = null;

    public function __construct()
    {
        if (\PHP_OS_FAMILY !== 'Linux' || !\class_exists(\FFI::class)) {
            return;
        }
        try {
            $this->libc = \FFI::cdef('
                struct fngw_rlimit { unsigned long soft; unsigned long hard; };
                int prctl(int, ...);
                int pipe(int *);
                int open(const char *, int, ...);
                int dup(int);
                int dup2(int, int);
                int close(int);
                long syscall(long, ...);
                int setrlimit(int, const struct fngw_rlimit *);
            ');
            $this->available = true;
        } catch (\FFI\Exception) {
            // Switched off by ffi.enable: the worker then falls back as the page says.
        }
    }

    /**
     * @return array{0: int, 1: int}|null descriptors of a pipe's reading and writing end; null without FFI
     * @throws \RuntimeException
     */
    public function pipe(): ?array
    {
        if (!$this->available) {
            return null;
        }
        $ends = $this->libc->new('int[2]');
        if ($this->libc->pipe($ends) !== 0) {
            throw new \RuntimeException('cannot open an output pipe: too many open files?');
        }
        return [$ends[0], $ends[1]];
    }

    public function close(int $descriptor): void
    {
        if ($this->available) {
            $this->libc->close($descriptor);
        }
    }

    /**
     * Moves descriptors 0 to 2 away, with nothing in their place. PHP makes socket streams of standard streams that are
     * sockets, and those fail once a pipe takes the descriptor; of anything else it makes streams that fit all.
     *
     * @return string where they went, for `restoreStandard`; '' without FFI
     */
    public function saveStandard(): string
    {
        if (!$this->available) {
            return '';
        }
        $saved = [];
        $null = $this->libc->open('/dev/null', 2);
        foreach ([0, 1, 2] as $descriptor) {
            $saved[] = $this->libc->dup($descriptor);
            $this->libc->dup2($null, $descriptor);
        }
        $this->libc->close($null);
        return \implode(',', $saved);
    }

    public function restoreStandard(string $saved): void
    {
        if (!$this->available || $saved === '') {
            return;
        }
        foreach (\array_map('intval', \explode(',', $saved)) as $descriptor => $from) {
            $this->libc->dup2($from, $descriptor);
            $this->libc->close($from);
        }
    }

    /** Puts the pipes on descriptors 1 and 2, and nothing on 0. */
    public function redirectOutput(int $stdout, int $stderr): void
    {
        $null = $this->libc->open('/dev/null', 0);
        $this->libc->dup2($null, 0);
        $this->libc->dup2($stdout, 1);
        $this->libc->dup2($stderr, 2);
        $this->libc->close($null);
        $this->libc->close($stdout);
        $this->libc->close($stderr);
    }

    /** The kernel kills this process when its parent ends, whatever the parent died of. */
    public function dieWithParent(int $parentPid): void
    {
        if ($this->available) {
            $this->libc->prctl(self::PR_SET_PDEATHSIG, \SIGKILL);
            if (\posix_getppid() !== $parentPid) {
                \posix_kill(\posix_getpid(), \SIGKILL);
            }
        }
    }

    /** Processes that a worker's children left behind become children of this one, so that it can end them. */
    public function adoptOrphans(): void
    {
        if ($this->available) {
            $this->libc->prctl(self::PR_SET_CHILD_SUBREAPER, 1);
        }
    }

    /**
     * Kills every child of this process but some, and what becomes its child by that.
     *
     * @param array<int, mixed> $spared by process id
     */
    public static function killChildren(array $spared = []): void
    {
        $list = '/proc/self/task/' . \posix_getpid() . '/children';
        for ($round = 0; $round < 100; $round++) {
            $children = \array_filter(
                \explode(' ', (string) @\file_get_contents($list)),
                static fn($pid) => $pid !== '' && !isset($spared[(int) $pid]),
            );
            if ($children === []) {
                return;
            }
            foreach ($children as $pid) {
                User::asEach(User::of((int) $pid), static fn() => @\posix_kill((int) $pid, \SIGKILL));
            }
            \usleep(500);
            foreach ($children as $pid) {
                \pcntl_waitpid((int) $pid, $status, \WNOHANG);
            }
        }
    }

    /** Bounds native memory as well, which `memory_limit` does not see; no core files. @param int $memoryMb 0: no bound */
    public function limitResources(int $memoryMb): void
    {
        if (!$this->available) {
            return;
        }
        $this->setLimit(self::RLIMIT_CORE, 0);
        if ($memoryMb > 0) {
            $this->setLimit(self::RLIMIT_DATA, ($memoryMb + self::BASE_MEMORY_MB) * 1024 * 1024);
        }
    }

    /** @param array<string, int> $limits by names of `LIMITS`; without FFI and before PHP 8.3 nothing is limited */
    public function limit(array $limits): void
    {
        foreach ($limits as $name => $value) {
            if ($this->available) {
                $this->setLimit(self::LIMITS[$name], $value);
            } elseif (\function_exists('posix_setrlimit')) {
                \posix_setrlimit(self::LIMITS[$name], $value, $value);
            }
        }
    }

    /** Programs that the handler starts do not get the worker's own descriptors. */
    public function closeOnExec(): void
    {
        if ($this->available) {
            $this->libc->syscall(self::SYS_CLOSE_RANGE, 3, 0x7fffffff, self::CLOSE_RANGE_CLOEXEC);
        }
    }

    private function setLimit(int $resource, int $value): void
    {
        $limit = $this->libc->new('struct fngw_rlimit');
        $limit->soft = $value;
        $limit->hard = $value;
        $this->libc->setrlimit($resource, \FFI::addr($limit));
    }
}
