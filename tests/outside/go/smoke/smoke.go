// Package smoke is what the programs of all Go clients share: the plan, and how steps are reported.
package smoke

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sort"
	"strings"
	"time"
)

const PerCodec = 30

// Plan is the program's only argument.
type Plan struct {
	Bootstrap   string   `json:"bootstrap"`
	Prefix      string   `json:"prefix"`
	Replication int      `json:"replication"`
	Steps       []string `json:"steps"`
	Compacted   struct {
		Topic     string `json:"topic"`
		Keys      int    `json:"keys"`
		LastRound int    `json:"last_round"`
		Written   int    `json:"written"`
	} `json:"compacted"`
}

func (p Plan) Brokers() []string { return strings.Split(p.Bootstrap, ",") }
func (p Plan) Orders() string    { return p.Prefix + "-orders" }
func (p Plan) Payments() string  { return p.Prefix + "-payments" }
func (p Plan) Group() string     { return p.Prefix + "-group" }

// Message is what was read, whatever the client calls it.
type Message struct {
	Partition int
	Offset    int64
	Key       string
	Value     string
	Codec     string // the header of this name
}

// Run prints one line "ok <step>" for each step of the plan that held, or an error, and exits.
func Run(steps map[string]func(context.Context, Plan)) {
	var plan Plan
	Must(json.Unmarshal([]byte(os.Args[1]), &plan))
	for _, name := range plan.Steps {
		step, isThere := steps[name]
		Check(isThere, "no step %s", name)
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		step(ctx, plan)
		cancel()
		fmt.Println("ok " + name)
	}
}

func Must(err error) {
	if err != nil {
		panic(err)
	}
}

func Get[T any](value T, err error) T {
	Must(err)
	return value
}

func Check(holds bool, format string, arguments ...any) {
	if !holds {
		panic(fmt.Sprintf(format, arguments...))
	}
}

func CheckSame(what string, got, wanted []string) {
	sort.Strings(got)
	sort.Strings(wanted)
	Check(slices.Equal(got, wanted), "%s: got %d %v, wanted %d %v", what, len(got), got, len(wanted), wanted)
}

// Named are the values word-0, word-1 ... of each word.
func Named(count int, words ...string) []string {
	var names []string
	for _, word := range words {
		for number := range count {
			names = append(names, fmt.Sprintf("%s-%d", word, number))
		}
	}
	return names
}

func Values(messages []Message) []string {
	var values []string
	for _, message := range messages {
		values = append(values, message.Value)
	}
	return values
}

// CheckOrders wants every message of every codec once, with its key and its header.
func CheckOrders(messages []Message, codecs []string) {
	CheckSame("orders", Values(messages), Named(PerCodec, codecs...))
	for _, message := range messages {
		codec, number, _ := strings.Cut(message.Value, "-")
		Check(message.Key == "key-"+number, "key %s of %s", message.Key, message.Value)
		Check(message.Codec == codec, "header %s of %s", message.Codec, message.Value)
	}
}

// CheckCompacted wants the last value of every key, and fewer records than were written.
func CheckCompacted(messages []Message, plan Plan) {
	Check(len(messages) < plan.Compacted.Written, "nothing of %d records was cleaned", len(messages))
	latest := map[string]string{}
	for _, message := range messages {
		latest[message.Key] = message.Value
	}
	var got, wanted []string
	for key, value := range latest {
		got = append(got, key+"="+value)
	}
	for number := range plan.Compacted.Keys {
		wanted = append(wanted, fmt.Sprintf("key-%d=round-%d of %d", number, plan.Compacted.LastRound, number))
	}
	CheckSame("latest", got, wanted)
}
