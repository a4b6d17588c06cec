// kafka-go against a broker. It has no transactional producer, so there is no such step.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"

	"penstock/outside/smoke"
)

var codecs = map[string]kafka.Compression{
	"none": 0, "gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
}

func main() {
	smoke.Run(map[string]func(context.Context, smoke.Plan){
		"topics": createTopics, "produce": produce, "group": readInGroup, "resume": resume,
		"admin": describeAndDelete, "compacted": readCompacted,
	})
}

func client(plan smoke.Plan) *kafka.Client {
	return &kafka.Client{Addr: kafka.TCP(plan.Brokers()...), Timeout: 30 * time.Second}
}

func createTopics(ctx context.Context, plan smoke.Plan) {
	var topics []kafka.TopicConfig
	for name, partitions := range map[string]int{plan.Orders(): 3, plan.Payments(): 1} {
		topics = append(topics, kafka.TopicConfig{
			Topic: name, NumPartitions: partitions, ReplicationFactor: plan.Replication,
			ConfigEntries: []kafka.ConfigEntry{{ConfigName: "retention.ms", ConfigValue: "86400000"}},
		})
	}
	created := smoke.Get(client(plan).CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: topics}))
	for _, err := range created.Errors {
		smoke.Must(err)
	}
	metadata := smoke.Get(client(plan).Metadata(ctx, &kafka.MetadataRequest{Topics: []string{plan.Orders()}}))
	smoke.Check(len(metadata.Topics[0].Partitions) == 3, "%v", metadata.Topics)
	smoke.Check(len(metadata.Topics[0].Partitions[0].Replicas) == plan.Replication, "%v", metadata.Topics)
	described := smoke.Get(client(plan).DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: plan.Orders(), ConfigNames: []string{"retention.ms"},
		}},
	}))
	value := described.Resources[0].ConfigEntries[0].ConfigValue
	smoke.Check(value == "86400000", "retention.ms is %s", value)
}

func write(ctx context.Context, plan smoke.Plan, word string, compression kafka.Compression) {
	writer := &kafka.Writer{
		Addr: kafka.TCP(plan.Brokers()...), Topic: plan.Orders(), Balancer: &kafka.Hash{},
		RequiredAcks: kafka.RequireAll, Compression: compression, BatchTimeout: 10 * time.Millisecond,
	}
	var messages []kafka.Message
	for number := range smoke.PerCodec {
		messages = append(messages, kafka.Message{
			Key:     fmt.Appendf(nil, "key-%d", number),
			Value:   fmt.Appendf(nil, "%s-%d", word, number),
			Headers: []kafka.Header{{Key: "codec", Value: []byte(word)}},
		})
	}
	smoke.Must(writer.WriteMessages(ctx, messages...))
	smoke.Must(writer.Close())
}

func produce(ctx context.Context, plan smoke.Plan) {
	for codec, compression := range codecs {
		write(ctx, plan, codec, compression)
	}
}

func read(ctx context.Context, plan smoke.Plan, topic, group string, isEnd func([]smoke.Message) bool) []smoke.Message {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: plan.Brokers(), GroupID: group, Topic: topic, StartOffset: kafka.FirstOffset,
		MaxWait: 200 * time.Millisecond,
	})
	var messages []smoke.Message
	var last []kafka.Message
	for !isEnd(messages) {
		message := smoke.Get(reader.FetchMessage(ctx))
		read := smoke.Message{
			Partition: message.Partition, Offset: message.Offset,
			Key: string(message.Key), Value: string(message.Value),
		}
		for _, header := range message.Headers {
			read.Codec = string(header.Value)
		}
		messages, last = append(messages, read), append(last, message)
	}
	smoke.Must(reader.CommitMessages(ctx, last...))
	smoke.Must(reader.Close())
	return messages
}

func readInGroup(ctx context.Context, plan smoke.Plan) {
	var names []string
	for codec := range codecs {
		names = append(names, codec)
	}
	isEnd := func(messages []smoke.Message) bool { return len(messages) >= len(names)*smoke.PerCodec }
	smoke.CheckOrders(read(ctx, plan, plan.Orders(), plan.Group(), isEnd), names)
}

func resume(ctx context.Context, plan smoke.Plan) {
	write(ctx, plan, "later", 0)
	isEnd := func(messages []smoke.Message) bool { return len(messages) >= smoke.PerCodec }
	later := read(ctx, plan, plan.Orders(), plan.Group(), isEnd)
	smoke.CheckSame("resumed", smoke.Values(later), smoke.Named(smoke.PerCodec, "later"))
}

func describeAndDelete(ctx context.Context, plan smoke.Plan) {
	groups := smoke.Get(client(plan).DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{plan.Group()}}))
	smoke.Check(groups.Groups[0].GroupState == "Empty", "%+v", groups.Groups[0])
	committed := smoke.Get(client(plan).OffsetFetch(ctx, &kafka.OffsetFetchRequest{
		GroupID: plan.Group(), Topics: map[string][]int{plan.Orders(): {0, 1, 2}},
	}))
	for _, row := range committed.Topics[plan.Orders()] {
		end := endOffset(ctx, plan, plan.Orders(), row.Partition)
		smoke.Check(row.CommittedOffset == end, "committed %d, the end is %d", row.CommittedOffset, end)
	}
	deleted := smoke.Get(client(plan).DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{plan.Payments()}}))
	smoke.Must(deleted.Errors[plan.Payments()])
}

func endOffset(ctx context.Context, plan smoke.Plan, topic string, partition int) int64 {
	listed := smoke.Get(client(plan).ListOffsets(ctx, &kafka.ListOffsetsRequest{
		Topics: map[string][]kafka.OffsetRequest{topic: {kafka.LastOffsetOf(partition)}},
	}))
	return listed.Topics[topic][0].LastOffset
}

func readCompacted(ctx context.Context, plan smoke.Plan) {
	end := endOffset(ctx, plan, plan.Compacted.Topic, 0)
	isEnd := func(messages []smoke.Message) bool {
		return len(messages) > 0 && messages[len(messages)-1].Offset == end-1
	}
	smoke.CheckCompacted(read(ctx, plan, plan.Compacted.Topic, plan.Prefix+"-table", isEnd), plan)
}
