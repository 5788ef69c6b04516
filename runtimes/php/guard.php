<?php
/** A forked process becomes a worker: a process of its own that waits for it. Page: runtimes/php. */

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
     *
     * @param User|null $user whom the worker proper becomes
     */
    public function guard(?User $user): void
    {
        $guardPid = \posix_getpid();
        // A signal to the whole group is meant for the worker: this process stays to report its end.
        $signals = [\SIGTERM, \SIGHUP, \SIGINT];
        foreach ($signals as $signal) {
            \pcntl_signal($signal, \SIG_IGN);
        }
        $pid = @\pcntl_fork();
        if ($pid > 0) {
            // What the worker starts stays below this process, whatever session or parent it gives itself: the daemon finds it there.
            $this->system->adoptOrphans();
            $this->waitFor($pid);
        }
        foreach ($signals as $signal) {
            \pcntl_signal($signal, \SIG_DFL);
        }
        $user?->become($this->system);
        // Not before the user has changed: with it the kernel clears the rule that this process ends with its parent.
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
            $ended = \pcntl_waitpid(-1, $status);
        } while ($ended !== $pid && ($ended > 0 || \pcntl_get_last_error() === \PCNTL_EINTR));
        if (\pcntl_wifsignaled($status)) {
            // This process ends by the same signal, and must not write a core file over the worker's.
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
