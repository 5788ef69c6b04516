<?php
/** Starts a worker: its socket bound ahead, then a fork. Page: runtime/daemon. */

declare(strict_types=1);

namespace Fngw;

/** What a forked worker goes on with. */
final class Job
{
    /** @var resource the worker's listening socket */
    public $listener;
    /** Path of that socket, '' for tcp. */
    public string $socketPath = '';
    public System $system;
    public int $memoryMb = 0;

    /**
     * Forks the worker proper and returns in it. Its parent serves it alone, leads its process group, and ends with its
     * status: a handler that kills its parent hits nobody else.
     */
    public function guard(): void
    {
        $guardPid = \posix_getpid();
        // What is sent to the group is for the worker.
        $signals = [\SIGTERM, \SIGHUP, \SIGINT];
        foreach ($signals as $signal) {
            \pcntl_signal($signal, \SIG_IGN);
        }
        $pid = @\pcntl_fork();
        if ($pid > 0) {
            $this->waitFor($pid);
        }
        foreach ($signals as $signal) {
            \pcntl_signal($signal, \SIG_DFL);
        }
        // Without a second process the worker goes on as its own guard.
        if ($pid === 0) {
            $this->system->dieWithParent($guardPid);
        }
    }

    private function waitFor(int $pid): never
    {
        \fclose($this->listener);
        foreach ([0, 1, 2] as $descriptor) {
            $this->system->close($descriptor);
        }
        do {
            $ended = \pcntl_waitpid($pid, $status);
        } while ($ended !== $pid && \pcntl_get_last_error() === \PCNTL_EINTR);
        if (\pcntl_wifsignaled($status)) {
            // It has left its core file, if any.
            $this->system->limitResources(0);
            $signal = \pcntl_wtermsig($status);
            if ($signal !== \SIGKILL) {
                \pcntl_signal($signal, \SIG_DFL);
            }
            \posix_kill(\posix_getpid(), $signal);
        }
        exit(\pcntl_wifexited($status) ? \pcntl_wexitstatus($status) : 1);
    }
}

final class Forker
{
    private Address $address;
    private System $system;
    private int $memoryMb;
    private int $number = 0;

    public function __construct(Address $address, System $system, int $memoryMb)
    {
        $this->address = $address;
        $this->system = $system;
        $this->memoryMb = $memoryMb;
    }

    /**
     * @param resource $control the connection that asked for it
     * @return WorkerProcess|Job the worker in the daemon, what to go on with in the worker
     * @throws \RuntimeException why no worker could be started
     */
    public function fork($control): WorkerProcess|Job
    {
        $this->number += 1;
        $daemonPid = \posix_getpid();
        // Bound before the fork: the gateway may connect while the worker still sets itself up.
        $address = $this->address->forWorker($this->number, $control);
        $job = new Job();
        $job->listener = $address->listen();
        $job->socketPath = $address->path;
        $job->system = $this->system;
        $job->memoryMb = $this->memoryMb;
        $pipes = [$this->system->pipe(), $this->system->pipe()];
        $pid = @\pcntl_fork();
        if ($pid === 0) {
            $this->setUpWorker($daemonPid, $pipes);
            return $job;
        }
        try {
            if ($pid === -1) {
                throw new \RuntimeException('cannot start a process: ' . \pcntl_strerror(\pcntl_get_last_error()));
            }
            $worker = new WorkerProcess("$daemonPid-{$this->number}", $address->toUri($job->listener), $address->path, $pid);
            foreach (['stdout', 'stderr'] as $index => $stream) {
                if ($pipes[$index] !== null) {
                    $worker->outputs[$stream] = new OutputPipe($pipes[$index][0], $this->system);
                }
            }
            return $worker;
        } catch (\RuntimeException $error) {
            if ($pid > 0) {
                \posix_kill($pid, \SIGKILL);
            }
            if ($address->path !== '') {
                @\unlink($address->path);
            }
            throw $error;
        } finally {
            $this->closeEnds($pipes, $pid === -1 ? [0, 1] : [1]);
        }
    }

    /** @param list<array{0: int, 1: int}|null> $pipes */
    private function setUpWorker(int $daemonPid, array $pipes): void
    {
        \posix_setsid();
        \umask(022);
        $this->system->dieWithParent($daemonPid);
        if ($pipes[0] !== null && $pipes[1] !== null) {
            $this->system->redirectOutput($pipes[0][1], $pipes[1][1]);
            $this->closeEnds($pipes, [0]);
        }
    }

    /**
     * @param list<array{0: int, 1: int}|null> $pipes
     * @param list<int> $which 0 is a pipe's reading end, 1 its writing end
     */
    private function closeEnds(array $pipes, array $which): void
    {
        foreach ($pipes as $ends) {
            foreach ($ends === null ? [] : $which as $end) {
                $this->system->close($ends[$end]);
            }
        }
    }
}
