package pgtemp

import (
	"os/exec"
	"runtime"
)

// process is a started command and the goroutine that waits for it.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed after err is set
	err  error         // what Wait said; read it after done
}

// spawn starts cmd. The caller sees to it that the process ends, and waits for done.
func spawn(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// Linux sends Pdeathsig when the THREAD that forked ends, and Go ends threads
		// as it likes: this one has to live as long as the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		<-p.done
		return nil, err
	}
	return p, nil
}
