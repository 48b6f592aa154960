//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package job

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// link is the run's end of the line to its monitor.
type link struct {
	orders  *json.Encoder
	reports <-chan report // closed when the monitor is gone
	monitor *exec.Cmd
	pipes   []io.Closer
}

// startMonitor starts this program as a monitor, in a process group of its own so that
// Ctrl-C and Ctrl-Z don't reach it. env is for the command.
func startMonitor(env []string, title string) (*link, error) {
	orders, toMonitor, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer orders.Close()
	fromMonitor, reports, err := os.Pipe()
	if err != nil {
		toMonitor.Close()
		return nil, err
	}
	defer reports.Close()
	l := &link{orders: json.NewEncoder(toMonitor), pipes: []io.Closer{toMonitor, fromMonitor}}
	if l.monitor, err = execMonitor(orders, reports, env, title); err != nil {
		l.close()
		return nil, err
	}
	l.reports = readReports(fromMonitor)
	return l, nil
}

// execMonitor hands the pipes over under the numbers that they have here: exec.Cmd's
// ExtraFiles would take the place of files that were inherited for the command.
func execMonitor(orders, reports *os.File, env []string, title string) (*exec.Cmd, error) {
	path, err := ownPath()
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{
		Path: path, Args: []string{"gatepost", monitorName}, Env: env,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	for _, file := range []*os.File{orders, reports} {
		fd := file.Fd()
		if _, err := unix.FcntlInt(fd, unix.F_SETFD, 0); err != nil {
			return nil, err
		}
		cmd.Args = append(cmd.Args, strconv.Itoa(int(fd)))
	}
	cmd.Args = append(cmd.Args, "of "+title) // for people
	return cmd, cmd.Start()
}

func ownPath() (string, error) {
	if _, err := os.Stat(selfPath); err == nil {
		return selfPath, nil
	}
	return os.Executable()
}

func readReports(r io.Reader) <-chan report {
	reports := make(chan report, 16)
	go func() { // ends with the monitor
		defer close(reports)
		for decoder := json.NewDecoder(r); ; {
			var said report
			if decoder.Decode(&said) != nil {
				return
			}
			reports <- said
		}
	}()
	return reports
}

// tell is in vain when the monitor is gone, which the end of the reports says.
func (l *link) tell(o order) { _ = l.orders.Encode(o) }

// begin has the monitor start the command, and returns its process id.
func (l *link) begin(o order) (pid int, err error) {
	l.tell(o)
	switch said, ok := <-l.reports; {
	case !ok:
		return 0, ErrMonitorGone
	case said.Event == eventFailed:
		return 0, &StartError{o.Start.Path, said.Errno}
	case said.Event != eventStarted:
		return 0, errors.New("the monitor process said " + string(said.Event) + " first")
	default:
		return said.PID, nil
	}
}

// close ends the monitor, which has nothing left to do, and waits for it.
func (l *link) close() {
	for _, pipe := range l.pipes {
		pipe.Close()
	}
	if l.monitor != nil {
		_ = l.monitor.Wait() // how it ended is of no interest any more
	}
}
