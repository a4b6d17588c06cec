import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The Java client behind a line protocol: one JSON command a line in, one JSON answer a line out.
 * Compiles against every client from 3.9 on; what is written and read is the test's matter.
 */
public final class ClientDriver {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration READ_TIMEOUT = Duration.ofSeconds(20);

    private final String bootstrap;
    private final Admin admin;
    private final KafkaConsumer<byte[], byte[]> consumer;

    private ClientDriver(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(clientConfig());
        Properties config = clientConfig();
        config.put("enable.auto.commit", "false");
        config.put("fetch.max.wait.ms", "10");
        this.consumer =
            new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        ClientDriver driver = new ClientDriver(arguments[0]);
        BufferedReader commands =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            answers.println(JSON.writeValueAsString(driver.answer(JSON.readTree(line))));
            answers.flush();
        }
        driver.consumer.close();
        driver.admin.close();
    }

    private ObjectNode answer(JsonNode command) {
        ObjectNode answer = JSON.createObjectNode();
        try {
            switch (command.get("op").asText()) {
                case "create_topic" -> createTopic(command);
                case "produce" -> produce(command);
                case "end_offset" -> answer.put("offset", endOffset(placeOf(command)));
                case "find_offset" -> answer.put("offset", findOffset(command));
                case "read" -> read(command, answer.putArray("records"));
                default -> answer.put("error", "unknown command " + command.get("op"));
            }
        } catch (Exception error) {
            answer.put("error", error.toString());
        }
        return answer;
    }

    private void createTopic(JsonNode command) throws Exception {
        String name = command.get("topic").asText();
        NewTopic topic = new NewTopic(name, command.get("partitions").asInt(), (short) 1);
        admin.createTopics(List.of(topic)).all().get();
    }

    private void produce(JsonNode command) throws Exception {
        Properties config = clientConfig();
        command.get("config").properties().forEach(e -> config.put(e.getKey(), e.getValue().asText()));
        String topic = command.get("topic").asText();
        List<Header> headers = new ArrayList<>();
        for (JsonNode header : command.get("headers")) {
            headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
        }
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (JsonNode record : command.get("records")) {
                sent.add(producer.send(new ProducerRecord<>(
                    topic, null, record.get(2).asLong(),
                    bytes(record.get(0)), bytes(record.get(1)), headers)));
            }
        }
        for (Future<RecordMetadata> each : sent) {
            each.get();
        }
    }

    private long endOffset(TopicPartition place) {
        return consumer.endOffsets(List.of(place)).get(place);
    }

    private Long findOffset(JsonNode command) {
        TopicPartition place = placeOf(command);
        long timestamp = command.get("timestamp_ms").asLong();
        OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(place, timestamp)).get(place);
        return found == null ? null : found.offset();
    }

    private void read(JsonNode command, ArrayNode records) {
        TopicPartition place = placeOf(command);
        consumer.assign(List.of(place));
        if (!command.get("timestamp_ms").isNull()) {
            consumer.seek(place, findOffset(command));
        } else if (!command.get("offset").isNull()) {
            consumer.seek(place, command.get("offset").asLong());
        } else {
            consumer.seekToBeginning(List.of(place));
        }
        long end = command.get("end_offset").asLong();
        long deadline = System.nanoTime() + READ_TIMEOUT.toNanos();
        while (consumer.position(place) < end && System.nanoTime() < deadline) {
            consumer.poll(Duration.ofMillis(500)).forEach(r -> describe(r, records.addObject()));
        }
    }

    private static void describe(ConsumerRecord<byte[], byte[]> record, ObjectNode node) {
        node.put("partition", record.partition()).put("offset", record.offset());
        node.put("timestamp_ms", record.timestamp());
        node.put("key", record.key()).put("value", record.value());
        ArrayNode headers = node.putArray("headers");
        record.headers().forEach(h -> headers.addArray().add(h.key()).add(h.value()));
    }

    private Properties clientConfig() {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        return config;
    }

    private static TopicPartition placeOf(JsonNode command) {
        return new TopicPartition(command.get("topic").asText(), command.get("partition").asInt());
    }

    private static byte[] bytes(JsonNode node) throws IOException {
        return node.isNull() ? null : node.binaryValue();
    }
}
