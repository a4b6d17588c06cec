// franz-go (kgo and kadm) against a broker.
package main

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"penstock/outside/smoke"
)

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func main() {
	smoke.Run(map[string]func(context.Context, smoke.Plan){
		"topics": createTopics, "produce": produce, "group": readInGroup, "resume": resume,
		"transactions": transactions, "admin": describeAndDelete, "compacted": readCompacted,
	})
}

func open(plan smoke.Plan, options ...kgo.Opt) *kgo.Client {
	return smoke.Get(kgo.NewClient(append(options, kgo.SeedBrokers(plan.Brokers()...))...))
}

func openAdmin(plan smoke.Plan) *kadm.Client { return kadm.NewClient(open(plan)) }

func createTopics(ctx context.Context, plan smoke.Plan) {
	admin := openAdmin(plan)
	defer admin.Close()
	retention := "86400000"
	config := map[string]*string{"retention.ms": &retention}
	for name, partitions := range map[string]int32{plan.Orders(): 3, plan.Payments(): 1} {
		smoke.Get(admin.CreateTopic(ctx, partitions, int16(plan.Replication), config, name))
	}
	topic := smoke.Get(admin.ListTopics(ctx, plan.Orders()))[plan.Orders()]
	smoke.Check(len(topic.Partitions) == 3, "%v", topic)
	smoke.Check(len(topic.Partitions[0].Replicas) == plan.Replication, "%v", topic)
	described := smoke.Get(smoke.Get(admin.DescribeTopicConfigs(ctx, plan.Orders())).On(plan.Orders(), nil))
	for _, entry := range described.Configs {
		smoke.Check(entry.Key != "retention.ms" || entry.MaybeValue() == retention, "%v", entry)
	}
}

func write(ctx context.Context, client *kgo.Client, topic, word string, count int) {
	var records []*kgo.Record
	for number := range count {
		records = append(records, &kgo.Record{
			Topic: topic, Key: fmt.Appendf(nil, "key-%d", number), Value: fmt.Appendf(nil, "%s-%d", word, number),
			Headers: []kgo.RecordHeader{{Key: "codec", Value: []byte(word)}},
		})
	}
	smoke.Must(client.ProduceSync(ctx, records...).FirstErr())
}

func produce(ctx context.Context, plan smoke.Plan) {
	for codec, compression := range codecs {
		client := open(plan, kgo.ProducerBatchCompression(compression))
		write(ctx, client, plan.Orders(), codec, smoke.PerCodec)
		client.Close()
	}
}

func read(ctx context.Context, plan smoke.Plan, topic, group string, isEnd func([]smoke.Message) bool) []smoke.Message {
	client := open(
		plan, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	)
	defer client.Close()
	var messages []smoke.Message
	for !isEnd(messages) {
		fetches := client.PollFetches(ctx)
		smoke.Must(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			message := smoke.Message{
				Partition: int(record.Partition), Offset: record.Offset,
				Key: string(record.Key), Value: string(record.Value),
			}
			for _, header := range record.Headers {
				message.Codec = string(header.Value)
			}
			messages = append(messages, message)
		})
	}
	smoke.Must(client.CommitUncommittedOffsets(ctx))
	return messages
}

func atLeast(count int) func([]smoke.Message) bool {
	return func(messages []smoke.Message) bool { return len(messages) >= count }
}

func readInGroup(ctx context.Context, plan smoke.Plan) {
	var names []string
	for codec := range codecs {
		names = append(names, codec)
	}
	messages := read(ctx, plan, plan.Orders(), plan.Group(), atLeast(len(names)*smoke.PerCodec))
	smoke.CheckOrders(messages, names)
}

func resume(ctx context.Context, plan smoke.Plan) {
	client := open(plan)
	write(ctx, client, plan.Orders(), "later", smoke.PerCodec)
	client.Close()
	later := read(ctx, plan, plan.Orders(), plan.Group(), atLeast(smoke.PerCodec))
	smoke.CheckSame("resumed", smoke.Values(later), smoke.Named(smoke.PerCodec, "later"))
}

func transactions(ctx context.Context, plan smoke.Plan) {
	client := open(plan, kgo.TransactionalID(plan.Payments()))
	for _, word := range []string{"first", "dropped", "second"} {
		smoke.Must(client.BeginTransaction())
		write(ctx, client, plan.Payments(), word, 10)
		smoke.Must(client.EndTransaction(ctx, kgo.TransactionEndTry(word != "dropped")))
	}
	client.Close()
	seen := read(ctx, plan, plan.Payments(), plan.Prefix+"-committed", atLeast(20))
	smoke.CheckSame("committed", smoke.Values(seen), smoke.Named(10, "first", "second"))
	copyInTransaction(ctx, plan)
}

// copyInTransaction consumes, produces and commits the offsets in one transaction.
func copyInTransaction(ctx context.Context, plan smoke.Plan) {
	session := smoke.Get(kgo.NewGroupTransactSession(
		kgo.SeedBrokers(plan.Brokers()...), kgo.TransactionalID(plan.Prefix+"-copy"),
		kgo.ConsumerGroup(plan.Prefix+"-copy"), kgo.ConsumeTopics(plan.Payments()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
	))
	defer session.Close()
	for copied := 0; copied < 20; {
		records := session.PollFetches(ctx).Records()
		smoke.Must(session.Begin())
		for _, record := range records {
			session.Produce(ctx, &kgo.Record{Topic: plan.Orders(), Value: record.Value}, nil)
		}
		isCommitted := smoke.Get(session.End(ctx, kgo.TryCommit))
		smoke.Check(isCommitted, "the transaction with %d records was not committed", len(records))
		copied += len(records)
	}
	admin := openAdmin(plan)
	defer admin.Close()
	lag := smoke.Get(admin.Lag(ctx, plan.Prefix+"-copy"))[plan.Prefix+"-copy"].Lag.Total()
	smoke.Check(lag <= 1, "lag %d after the copy", lag) // the end marker may be behind the last record
}

func describeAndDelete(ctx context.Context, plan smoke.Plan) {
	admin := openAdmin(plan)
	defer admin.Close()
	lags := smoke.Get(admin.Lag(ctx, plan.Group()))
	smoke.Check(lags[plan.Group()].State == "Empty", "%+v", lags[plan.Group()])
	smoke.Must(smoke.Get(admin.DeleteTopic(ctx, plan.Payments())).Err)
	topics := smoke.Get(admin.ListTopics(ctx))
	smoke.Check(!topics.Has(plan.Payments()), "%s is still there", plan.Payments())
}

func readCompacted(ctx context.Context, plan smoke.Plan) {
	admin := openAdmin(plan)
	defer admin.Close()
	ends := smoke.Get(admin.ListEndOffsets(ctx, plan.Compacted.Topic))
	end, _ := ends.Lookup(plan.Compacted.Topic, 0)
	isEnd := func(messages []smoke.Message) bool {
		return len(messages) > 0 && messages[len(messages)-1].Offset == end.Offset-1
	}
	smoke.CheckCompacted(read(ctx, plan, plan.Compacted.Topic, plan.Prefix+"-table", isEnd), plan)
}
